//! Names, headers and how many opcodes there are.

use super::*;

#[test]
fn names_follow_the_service() {
    assert_eq!(Opcode(0x04).to_string(), "RC_SEND_ONLY");
    assert_eq!(Opcode(0x2b).to_string(), "UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE");
    assert_eq!(Opcode(0x64).to_string(), "UD_SEND_ONLY");
    assert_eq!(Opcode(0xb6).to_string(), "XRC_SEND_LAST_WITH_INVALIDATE");
    assert_eq!(Opcode(0x81).to_string(), "CNP");
    assert_eq!(Opcode(0xc7).to_string(), "SR_RDMA_WRITE_MIDDLE");
    assert_eq!(Opcode(0xdc).to_string(), "UNKNOWN_0xdc");
    assert_eq!(Opcode(0x2c).to_string(), "UNKNOWN_0x2c"); // UC has no READ
    assert_eq!(Opcode(0x44).to_string(), "UNKNOWN_0x44");
    assert_eq!((Opcode(0xe4).to_string(), Opcode(0xf1).to_string()), ("XP_SEND".into(), "XP_FEEDBACK".into()));
    assert_eq!((Opcode(0xf5).to_string(), Opcode(0xd5).to_string()), ("XP_CREDIT".into(), "UNKNOWN_0xd5".into()));
    assert_eq!(Opcode(0xff).to_string(), "UNKNOWN_0xff");
}

#[test]
fn every_known_opcode_has_a_name_and_the_count_is_right() {
    let known: Vec<_> = (0..=255).map(Opcode).filter(|o| o.is_known()).collect();
    assert!(known.iter().all(|o| !o.to_string().starts_with("UNKNOWN")));
    // RC 21 + 2 invalidating + FLUSH + ATOMIC WRITE, as many of XRC, 12 of UC, 2 of UD, the CNP, 23 of SR, LoWAR's, 8 of XP.
    assert_eq!(known.len(), 25 + 25 + 12 + 2 + 1 + 23 + 1 + 8);
}

#[test]
fn every_name_leads_back_to_its_opcode_and_nothing_else_does() {
    for o in (0..=255).map(Opcode) {
        assert_eq!(Opcode::from_name(&o.to_string()), Some(o));
    }
    for wrong in ["", "RC_", "RC_SEND", "RC_SEND_ONLYX", "SEND_ONLY", "rc_send_only", " CNP", "UNKNOWN_0x04"] {
        assert_eq!(Opcode::from_name(wrong), None, "{wrong}");
    }
}

#[test]
fn header_lengths() {
    let len = |op| Opcode(op).headers_len();
    assert_eq!((len(0x04), len(0x0a), len(0x0b)), (0, 16, 20));
    assert_eq!((len(0x0d), len(0x0e), len(0x12), len(0x13)), (4, 0, 12, 28));
    // Of Selective Repeat: SEND, WRITE middle, last with immediate, READ request and response, ACK, atomics.
    assert_eq!((len(0xc1), len(0xc7), len(0xc9), len(0xcc), len(0xce)), (8, 16, 28, 16, 8));
    assert_eq!((len(0xd1), len(0xd2), len(0xd3), len(0xd7)), (12, 16, 28, 12));
    assert_eq!((len(0x65), len(0xaa), len(0xb1), len(0x1c)), (12, 20, 4, 20));
    assert_eq!((len(0x81), len(0xf6)), (0, 0));
    // Of XP: SEND, WRITE with immediate, READ request and response, feedback, credit.
    assert_eq!((len(0xe4), len(0xeb), len(0xec), len(0xf0)), (16, 36, 36, 16));
    assert_eq!((len(0xf1), len(0xf5)), (20, 12));
}
