//! The calls of a program that faults can be for: verbs by their names without `ibv_`, functions of librdmacm with `rdma_`.

/// How a call says that it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// By an errno.
    Errno,
    /// It cannot fail.
    Never,
}

macro_rules! verbs {
    ($($(#[$doc:meta])* $verb:ident $name:literal $failure:ident,)*) => {
        /// A call of a program.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Verb { $(
            #[doc = concat!("`", $name, "`.")]
            $(#[$doc])*
            $verb,
        )* }

        impl Verb {
            /// All of them.
            pub const ALL: &[Verb] = &[$(Verb::$verb,)*];

            /// As scripts name it.
            pub fn name(self) -> &'static str {
                match self { $(Verb::$verb => $name,)* }
            }

            /// How it says that it failed.
            pub fn failure(self) -> Failure {
                match self { $(Verb::$verb => Failure::$failure,)* }
            }
        }
    };
}

verbs! {
    GetDeviceList "get_device_list" Errno,
    OpenDevice "open_device" Errno,
    CloseDevice "close_device" Errno,
    /// And `query_device_ex`.
    QueryDevice "query_device" Errno,
    QueryPort "query_port" Errno,
    QueryGid "query_gid" Errno,
    QueryPkey "query_pkey" Errno,
    /// And `alloc_parent_domain`.
    AllocPd "alloc_pd" Errno,
    DeallocPd "dealloc_pd" Errno,
    AllocTd "alloc_td" Errno,
    DeallocTd "dealloc_td" Errno,
    /// And `reg_mr_iova`, `reg_mr_iova2`, `reg_mr_ex`, `reg_buf_mr` and `alloc_null_mr`.
    RegMr "reg_mr" Errno,
    ReregMr "rereg_mr" Errno,
    DeregMr "dereg_mr" Errno,
    AllocMw "alloc_mw" Errno,
    DeallocMw "dealloc_mw" Errno,
    BindMw "bind_mw" Errno,
    CreateCompChannel "create_comp_channel" Errno,
    DestroyCompChannel "destroy_comp_channel" Errno,
    /// And `create_cq_ex`.
    CreateCq "create_cq" Errno,
    ResizeCq "resize_cq" Errno,
    DestroyCq "destroy_cq" Errno,
    /// And `start_poll` of extended queues.
    PollCq "poll_cq" Errno,
    ReqNotifyCq "req_notify_cq" Errno,
    GetCqEvent "get_cq_event" Errno,
    AckCqEvents "ack_cq_events" Never,
    GetAsyncEvent "get_async_event" Errno,
    AckAsyncEvent "ack_async_event" Never,
    /// And `create_srq_ex`.
    CreateSrq "create_srq" Errno,
    ModifySrq "modify_srq" Errno,
    QuerySrq "query_srq" Errno,
    DestroySrq "destroy_srq" Errno,
    PostSrqRecv "post_srq_recv" Errno,
    /// And `create_qp_ex`.
    CreateQp "create_qp" Errno,
    ModifyQp "modify_qp" Errno,
    QueryQp "query_qp" Errno,
    DestroyQp "destroy_qp" Errno,
    /// And `wr_complete` of extended queue pairs.
    PostSend "post_send" Errno,
    PostRecv "post_recv" Errno,
    AttachMcast "attach_mcast" Errno,
    DetachMcast "detach_mcast" Errno,
    /// And `create_ah_from_wc`.
    CreateAh "create_ah" Errno,
    DestroyAh "destroy_ah" Errno,
    CmCreateEventChannel "rdma_create_event_channel" Errno,
    CmDestroyEventChannel "rdma_destroy_event_channel" Never,
    CmCreateId "rdma_create_id" Errno,
    CmDestroyId "rdma_destroy_id" Errno,
    CmCreateEp "rdma_create_ep" Errno,
    CmDestroyEp "rdma_destroy_ep" Never,
    CmMigrateId "rdma_migrate_id" Errno,
    CmBindAddr "rdma_bind_addr" Errno,
    CmResolveAddr "rdma_resolve_addr" Errno,
    CmResolveRoute "rdma_resolve_route" Errno,
    /// And `rdma_create_qp_ex`.
    CmCreateQp "rdma_create_qp" Errno,
    CmDestroyQp "rdma_destroy_qp" Never,
    /// And `rdma_create_srq_ex`.
    CmCreateSrq "rdma_create_srq" Errno,
    CmDestroySrq "rdma_destroy_srq" Never,
    CmInitQpAttr "rdma_init_qp_attr" Errno,
    CmConnect "rdma_connect" Errno,
    CmEstablish "rdma_establish" Errno,
    CmListen "rdma_listen" Errno,
    CmGetRequest "rdma_get_request" Errno,
    CmAccept "rdma_accept" Errno,
    /// And `rdma_reject_ece`.
    CmReject "rdma_reject" Errno,
    CmNotify "rdma_notify" Errno,
    CmDisconnect "rdma_disconnect" Errno,
    /// And `rdma_join_multicast_ex`.
    CmJoinMulticast "rdma_join_multicast" Errno,
    CmLeaveMulticast "rdma_leave_multicast" Errno,
    CmGetCmEvent "rdma_get_cm_event" Errno,
    CmAckCmEvent "rdma_ack_cm_event" Errno,
    CmSetOption "rdma_set_option" Errno,
    CmGetDevices "rdma_get_devices" Errno,
}

impl Verb {
    /// By the name that scripts have for it.
    pub fn from_name(name: &str) -> Option<Verb> {
        Verb::ALL.iter().copied().find(|verb| verb.name() == name)
    }

    /// Whether it posts or changes one queue pair, so that a rule may name which.
    pub fn has_queue_pair(self) -> bool {
        matches!(
            self,
            Verb::PostSend
                | Verb::PostRecv
                | Verb::BindMw
                | Verb::ModifyQp
                | Verb::QueryQp
                | Verb::DestroyQp
                | Verb::AttachMcast
                | Verb::DetachMcast
        )
    }

    /// Whether it posts work requests, so that a rule may name one.
    pub fn has_work_request(self) -> bool {
        matches!(self, Verb::PostSend | Verb::PostRecv | Verb::PostSrqRecv | Verb::BindMw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_found_by_its_name_alone() {
        for &verb in Verb::ALL {
            assert_eq!(Verb::from_name(verb.name()), Some(verb));
        }
        assert_eq!(Verb::from_name("ibv_post_send"), None);
    }
}
