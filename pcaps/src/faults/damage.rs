//! Which bit was flipped: a CRC is linear, so the difference of the right one and the wrong one belongs to one place.

use softnic_wire::{Error, Layout, icrc};

/// The polynomial of the ICRC, least significant bit first.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// The frame as it was sent, and the bit that was flipped, counted from the frame's beginning with the lowest bit of a byte first; `None`
/// where no single bit explains the ICRC.
pub(super) fn repair(frame: &[u8], layout: &Layout) -> Option<(Vec<u8>, u32)> {
    let Err(Error::Icrc { found, expected }) = icrc::verify_shared(frame, layout) else { return None };
    let difference = found ^ expected;
    let at = layout.end.checked_sub(icrc::LEN)?;
    let bit = match difference.is_power_of_two() {
        true => at * 8 + difference.trailing_zeros() as usize,
        false => place(difference, at - layout.network)? + layout.network * 8,
    };
    let mut whole = frame.to_vec();
    *whole.get_mut(bit / 8)? ^= 1 << (bit % 8);
    // Two places may differ alike where the ICRC leaves a field out.
    icrc::verify_shared(&whole, layout).is_ok().then_some((whole, bit as u32))
}

/// The bit of `len` bytes whose change changes the CRC by this.
fn place(difference: u32, len: usize) -> Option<usize> {
    // What each bit of a byte changes, the last byte first; each byte before it is one more step of the register.
    let mut changes = [0, 1, 2, 3, 4, 5, 6, 7].map(|bit| after_a_byte(1 << bit));
    for byte in (0..len).rev() {
        if let Some(bit) = changes.iter().position(|change| *change == difference) {
            return Some(byte * 8 + bit);
        }
        changes = changes.map(after_a_byte);
    }
    None
}

/// The register after eight zero bits.
fn after_a_byte(register: u32) -> u32 {
    (0..8).fold(register, |r, _| (r >> 1) ^ if r & 1 != 0 { POLYNOMIAL } else { 0 })
}
