//! Errnos of verbs.

use softnic_fault_injector::calls::Verb;

/// Errnos that a verb gives in practice.
pub(crate) fn errnos(verb: Verb) -> &'static [&'static str] {
    use Verb as V;
    match verb {
        V::AckCqEvents | V::AckAsyncEvent | V::CmDestroyEventChannel | V::CmDestroyEp | V::CmDestroyQp => &[],
        V::CmDestroySrq | V::CmAckCmEvent => &[],
        V::GetDeviceList | V::OpenDevice | V::AllocPd | V::AllocTd | V::CreateCompChannel => &["ENOMEM"],
        V::RegMr | V::ReregMr | V::AllocMw => &["ENOMEM", "EINVAL"],
        V::CreateCq | V::CreateSrq | V::CreateQp | V::CmCreateQp | V::CmCreateSrq => &["ENOMEM", "EINVAL"],
        V::CreateAh => &["ENOMEM", "ETIMEDOUT"],
        V::QueryDevice | V::QueryPort | V::QueryGid | V::QueryPkey | V::QueryQp | V::QuerySrq => &["EIO"],
        V::CloseDevice | V::DeallocPd | V::DeallocTd | V::DeregMr | V::DeallocMw => &["EBUSY"],
        V::DestroyCq | V::DestroySrq | V::DestroyQp | V::DestroyAh | V::DestroyCompChannel => &["EBUSY"],
        V::ModifyQp => &["EINVAL", "ETIMEDOUT"],
        V::PostSend | V::PostRecv | V::PostSrqRecv | V::BindMw => &["ENOMEM"],
        V::PollCq | V::ReqNotifyCq | V::ResizeCq | V::ModifySrq => &["EIO"],
        V::GetCqEvent | V::GetAsyncEvent | V::CmGetCmEvent | V::CmGetRequest => &["EINTR"],
        V::AttachMcast | V::DetachMcast | V::CmJoinMulticast | V::CmLeaveMulticast => &["EINVAL"],
        V::CmCreateEventChannel => &["ENODEV"],
        V::CmBindAddr => &["EADDRNOTAVAIL", "EADDRINUSE"],
        V::CmResolveAddr => &["ENODEV", "ENETUNREACH"],
        V::CmListen => &["EADDRINUSE"],
        V::CmCreateId | V::CmCreateEp | V::CmGetDevices => &["ENOMEM"],
        V::CmResolveRoute | V::CmConnect | V::CmAccept | V::CmEstablish | V::CmReject | V::CmNotify => &["EINVAL"],
        V::CmDisconnect | V::CmInitQpAttr | V::CmMigrateId | V::CmSetOption | V::CmDestroyId => &["EINVAL"],
    }
}

#[cfg(test)]
mod tests {
    use softnic_fault_injector::calls::Failure;

    use super::*;

    #[test]
    fn calls_that_cannot_fail_have_no_errno() {
        for &verb in Verb::ALL {
            assert!(verb.failure() == Failure::Errno || errnos(verb).is_empty(), "{}", verb.name());
        }
    }
}
