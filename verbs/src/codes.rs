//! Conversion of enumerations and flags between verbs and the NIC.

use softnic_runtime::api::{Access, PathMtu, QpState, SendFlags, Status, WcOpcode};

use crate::abi::*;
use crate::errno::Errno;

/// The verbs code of a state.
pub(crate) fn state_code(state: QpState) -> c_int {
    match state {
        QpState::Reset => 0,
        QpState::Init => 1,
        QpState::ReadyToReceive => 2,
        QpState::ReadyToSend => 3,
        QpState::SendQueueDrain => 4,
        QpState::SendQueueError => 5,
        QpState::Error => 6,
    }
}

/// The state of a verbs code.
pub(crate) fn state_of(code: c_int) -> Result<QpState, Errno> {
    Ok(match code {
        0 => QpState::Reset,
        1 => QpState::Init,
        2 => QpState::ReadyToReceive,
        3 => QpState::ReadyToSend,
        4 => QpState::SendQueueDrain,
        5 => QpState::SendQueueError,
        6 => QpState::Error,
        _ => return Err(Errno::EINVAL),
    })
}

/// The verbs code of a path MTU.
pub(crate) fn mtu_code(mtu: PathMtu) -> c_int {
    match mtu {
        PathMtu::B256 => 1,
        PathMtu::B512 => 2,
        PathMtu::B1024 => 3,
        PathMtu::B2048 => 4,
        PathMtu::B4096 => 5,
    }
}

/// The path MTU of a verbs code.
pub(crate) fn mtu_of(code: c_int) -> Result<PathMtu, Errno> {
    Ok(match code {
        1 => PathMtu::B256,
        2 => PathMtu::B512,
        3 => PathMtu::B1024,
        4 => PathMtu::B2048,
        5 => PathMtu::B4096,
        _ => return Err(Errno::EINVAL),
    })
}

/// The rights of verbs flags. Bits that a device may ignore are ignored; other unknown bits are refused.
pub(crate) fn access_of(flags: c_uint) -> Result<Access, Errno> {
    let ignored = IBV_ACCESS_OPTIONAL_RANGE | IBV_ACCESS_HUGETLB | IBV_ACCESS_ZERO_BASED;
    let mut access = Access::NONE;
    let mut rest = flags & !ignored;
    for (flag, right) in [
        (IBV_ACCESS_LOCAL_WRITE, Access::LOCAL_WRITE),
        (IBV_ACCESS_REMOTE_WRITE, Access::REMOTE_WRITE),
        (IBV_ACCESS_REMOTE_READ, Access::REMOTE_READ),
        (IBV_ACCESS_REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
        (IBV_ACCESS_MW_BIND, Access::MW_BIND),
    ] {
        if rest & flag != 0 {
            access = access | right;
            rest &= !flag;
        }
    }
    match rest {
        0 => Ok(access),
        // On-demand paging would make no difference here, but programs that request it also need its other verbs.
        IBV_ACCESS_ON_DEMAND => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}

/// The verbs flags of a queue pair's rights.
pub(crate) fn access_flags(access: Access) -> c_uint {
    [
        (Access::LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE),
        (Access::REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE),
        (Access::REMOTE_READ, IBV_ACCESS_REMOTE_READ),
        (Access::REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC),
    ]
    .into_iter()
    .filter(|(right, _)| access.allows(*right))
    .fold(0, |flags, (_, flag)| flags | flag)
}

/// The verbs code of a status.
pub(crate) fn status_code(status: Status) -> c_int {
    match status {
        Status::Success => 0,
        Status::LocLenErr => 1,
        Status::LocQpOpErr => 2,
        Status::LocProtErr => 4,
        Status::WrFlushErr => 5,
        Status::MwBindErr => 6,
        Status::BadRespErr => 7,
        Status::LocAccessErr => 8,
        Status::RemInvReqErr => 9,
        Status::RemAccessErr => 10,
        Status::RemOpErr => 11,
        Status::RetryExcErr => 12,
        Status::RnrRetryExcErr => 13,
    }
}

/// The verbs code of an operation.
pub(crate) fn opcode_code(opcode: WcOpcode) -> c_int {
    match opcode {
        WcOpcode::Send => 0,
        WcOpcode::Write => 1,
        WcOpcode::Read => 2,
        WcOpcode::CompareSwap => 3,
        WcOpcode::FetchAdd => 4,
        WcOpcode::BindWindow => 5,
        WcOpcode::LocalInv => 6,
        WcOpcode::Recv => 1 << 7,
        WcOpcode::RecvWriteImm => (1 << 7) + 1,
    }
}

/// The flags of a send work request.
#[inline]
pub(crate) fn flags_of(flags: c_uint) -> SendFlags {
    SendFlags {
        signaled: flags & IBV_SEND_SIGNALED != 0,
        solicited: flags & IBV_SEND_SOLICITED != 0,
        fence: flags & IBV_SEND_FENCE != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_translated_and_unknown_ones_refused() {
        let all = access_of(0x1f).unwrap();
        assert!(all.allows(Access::LOCAL_WRITE | Access::REMOTE | Access::MW_BIND));
        assert_eq!(access_of(IBV_ACCESS_OPTIONAL_RANGE | IBV_ACCESS_HUGETLB).unwrap(), Access::NONE);
        assert_eq!(access_of(1 << 15), Err(Errno::EINVAL));
        assert_eq!(access_of(IBV_ACCESS_ON_DEMAND), Err(Errno::EOPNOTSUPP));
    }
    #[test]
    fn states_have_the_numbers_of_verbs() {
        for state in 0..7 {
            assert_eq!(state_code(state_of(state).unwrap()), state);
        }
        assert!(state_of(7).is_err());
    }
}
