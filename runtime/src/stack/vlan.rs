//! The 802.1Q tag of a port: removed from received frames, added to sent frames.

use softnic_wire::TxFrame;

/// The ethertype of a tag (IEEE 802.1Q, 9.6).
const TAG: [u8; 2] = [0x81, 0x00];
/// Length of both MAC addresses, which a tag follows.
const ADDRESSES: usize = 12;
const TAG_LEN: usize = 4;
/// The lower bits of a tag are the VLAN id; the bits above are the priority, which is ignored here.
const ID_BITS: u16 = 0x0fff;

/// The frame without its tag; `None` if the frame is not of the port's VLAN. A port without a VLAN takes untagged frames, and those with a
/// priority tag (VLAN id 0).
pub(crate) fn untagged(vlan: Option<u16>, frame: &mut [u8]) -> Option<&mut [u8]> {
    let id = match frame.get(ADDRESSES..ADDRESSES + TAG_LEN)? {
        [a, b, high, low] if [*a, *b] == TAG => Some(u16::from_be_bytes([*high, *low]) & ID_BITS),
        _ => None,
    };
    match (id, vlan) {
        (None, None) => Some(frame),
        (Some(id), vlan) if id == vlan.unwrap_or(0) => {
            frame.copy_within(..ADDRESSES, TAG_LEN);
            Some(&mut frame[TAG_LEN..])
        }
        _ => None,
    }
}

/// Adds a tag to a frame; `false` if there is no room for it.
pub(crate) fn tag(vlan: u16, tx: &mut TxFrame<'_>) -> bool {
    let (first, second) = tx.segments();
    let whole = [first, second].concat();
    let Some((addresses, rest)) = whole.split_at_checked(ADDRESSES) else { return false };
    tx.put_frame(&[addresses, &TAG, &(vlan & ID_BITS).to_be_bytes(), rest].concat()).is_ok()
}
