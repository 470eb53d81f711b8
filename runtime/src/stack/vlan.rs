//! The 802.1Q tag of a port: taken off what comes in, put on what goes out.

use softnic_wire::TxFrame;

/// The ethertype of a tag (IEEE 802.1Q, 9.6).
const TAG: [u8; 2] = [0x81, 0x00];
/// Both MAC addresses: a tag comes behind them.
const ADDRESSES: usize = 12;
const TAG_LEN: usize = 4;
/// The lower bits of a tag are the VLAN's id; those above are the priority, which nothing depends on here.
const ID_BITS: u16 = 0x0fff;

/// The frame without its tag; `None` when it is of another VLAN than the port. Without a VLAN these are untagged frames, and those whose tag
/// has a priority alone.
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

/// Puts a tag on a frame; `false` when there is no room for it.
pub(crate) fn tag(vlan: u16, tx: &mut TxFrame<'_>) -> bool {
    let (first, second) = tx.segments();
    let whole = [first, second].concat();
    let Some((addresses, rest)) = whole.split_at_checked(ADDRESSES) else { return false };
    tx.put_frame(&[addresses, &TAG, &(vlan & ID_BITS).to_be_bytes(), rest].concat()).is_ok()
}
