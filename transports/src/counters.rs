//! The counters of a NIC, named as by mlx5 and rxe in sysfs if they have such a counter, otherwise by softnic.

/// Counters of a NIC. They only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)] // the names are the documentation people look for
pub struct Counters {
    pub sent_pkts: u64,
    pub sent_bytes: u64,
    pub rcvd_pkts: u64,
    pub rcvd_bytes: u64,
    pub rx_write_requests: u64,
    pub rx_send_requests: u64,
    pub rx_read_requests: u64,
    pub rx_atomic_requests: u64,
    /// READ responses or atomic answers that were skipped; their requests are sent again.
    pub implied_nak_seq_err: u64,
    /// SENDs and WRITEs with immediate that found no receive posted.
    pub out_of_buffer: u64,
    /// Requests that arrived early, with an earlier packet missing.
    pub out_of_sequence: u64,
    pub duplicate_request: u64,
    /// Sequence NAKs received.
    pub packet_seq_err: u64,
    /// Sequence NAKs sent.
    pub sent_seq_naks: u64,
    pub rnr_naks_received: u64,
    pub rnr_nak_retry_err: u64,
    pub local_ack_timeout_err: u64,
    pub retry_exceeded_err: u64,
    /// Frames whose ICRC did not match.
    pub rx_icrc_encapsulated: u64,
    pub req_remote_access_errors: u64,
    pub req_remote_invalid_request: u64,
    pub resp_remote_access_errors: u64,
    pub resp_remote_invalid_request: u64,
    pub resp_local_length_error: u64,
    pub req_cqe_error: u64,
    pub resp_cqe_error: u64,
    /// Request packets sent for the first time.
    pub sent_requests: u64,
    /// Request packets sent again.
    pub retransmitted_packets: u64,
    /// Acknowledgements for PSNs that were never sent, or were acknowledged before.
    pub stale_acks: u64,
    /// Frames that were not RoCE, or not for an address of this NIC.
    pub rx_not_for_us: u64,
    /// RoCE packets whose headers break a rule.
    pub rx_malformed: u64,
    /// Packets to a queue pair that does not exist or cannot receive.
    pub rx_bad_qp: u64,
    /// Packets whose source is not the connected peer's address, or whose destination is not the queue pair's own address.
    pub rx_wrong_source: u64,
    /// Answers of the negotiation of extensions that match no offer: their transaction id differs.
    pub rx_unasked_answers: u64,
    /// Datagrams to QP1 from a source that exceeds its rate.
    pub rx_source_over_rate: u64,
    /// Packets of authenticated connections without a valid tag, and MADs of their negotiation without a valid MAC.
    pub rx_auth_failed: u64,
    /// Packets of authenticated connections that arrived before, or are too old for the replay window.
    pub rx_auth_replayed: u64,
    /// Packets of another partition.
    pub rx_bad_pkey: u64,
    /// Datagrams whose Q_Key was not the queue pair's.
    pub rx_bad_qkey: u64,
    /// Datagrams to a multicast group without members on this NIC.
    pub rx_no_group: u64,
    /// Congestion notifications that were passed to a queue pair's congestion control.
    pub rp_cnp_handled: u64,
    /// Congestion notifications to queue pairs without congestion control, and those within 50 µs of one that counted.
    pub rp_cnp_ignored: u64,
    /// Packets that arrived with a congestion mark.
    pub np_ecn_marked_roce_packets: u64,
    /// Congestion notifications sent.
    pub np_cnp_sent: u64,
    /// Repair packets of LoWAR sent.
    pub lowar_repairs_sent: u64,
    /// Repair packets received.
    pub lowar_repairs_received: u64,
    /// Packets that were lost and recovered.
    pub lowar_recovered_packets: u64,
    /// Packets that were held until an earlier one arrived.
    pub lowar_held_packets: u64,
    /// Blocks that could not be repaired, and were left to Go-Back-N.
    pub lowar_failed_blocks: u64,
    /// Blocks sent without repair packets, because all coding units were in use.
    pub lowar_unprotected_blocks: u64,
    /// Packets in the reordering ring whose slot was taken by another packet.
    pub lowar_ring_overruns: u64,
    /// Repair packets that did not match the received packets, or were damaged by their sender.
    pub lowar_rejected: u64,
    /// Messages and READs of XP that completed without all of their bytes.
    pub xp_partial_messages: u64,
    /// Such messages that ended because a later message started.
    pub xp_preempted_messages: u64,
    /// Such messages that ended because their time was over.
    pub xp_expired_messages: u64,
    /// Bytes missing in such messages, if a packet contained their length.
    pub xp_missing_bytes: u64,
    /// Packets of XP messages that had ended: dropped.
    pub xp_late_packets: u64,
    /// Packets of XP whose headers are contradictory, or contradict others of their message: dropped.
    pub xp_rejected_packets: u64,
    /// Sends of XP that were not completely sent by their deadline.
    pub xp_expired_sends: u64,
    /// READs of XP beyond the permitted number: the oldest one is no longer answered.
    pub xp_dropped_reads: u64,
    /// Feedback packets of XP sent.
    pub xp_feedback_sent: u64,
    /// Feedback packets of XP with new information.
    pub xp_feedback_received: u64,
    /// Credit packets of EQDS sent.
    pub eqds_credit_sent: u64,
    /// Credit packets of EQDS that arrived and were accepted.
    pub eqds_credit_received: u64,
    /// Credit packets that were older than another one, or duplicates: dropped.
    pub eqds_credit_stale: u64,
    /// Credit that was never granted or is of another queue pair, impossible requests, and credit without an agreement: dropped.
    pub eqds_credit_rejected: u64,
    /// Bytes that a receiver granted.
    pub eqds_granted_bytes: u64,
    /// Credit requests that a sender repeated because no answer arrived.
    pub eqds_asked_again: u64,
    /// Packets of SDR messages that were placed.
    pub sdr_packets: u64,
    /// Packets of completed SDR messages: late, and discarded.
    pub sdr_into_null: u64,
    /// Packets of SDR messages whose slot is used by a later message: late, and discarded.
    pub sdr_old_generation: u64,
    /// Packets of SDR messages that had arrived before.
    pub sdr_duplicates: u64,
    /// Packets that match no posted SDR message, and control messages with impossible contents: dropped.
    pub sdr_rejected: u64,
    /// Control messages that announced receives to an SDR sender.
    pub sdr_cts_sent: u64,
    /// Such messages without new information.
    pub sdr_cts_repeated: u64,
    /// Control messages by which an SDR sender requested such a message.
    pub sdr_asks_sent: u64,
    /// Chunks of reliable SDR messages sent for the first time.
    pub sdr_chunks_sent: u64,
    /// Chunks sent again.
    pub sdr_chunks_repeated: u64,
    /// Chunks sent again because their timeout expired.
    pub sdr_chunk_timeouts: u64,
    /// Chunks sent again because the peer requested them.
    pub sdr_chunks_asked_for: u64,
    /// Further rows of parity that peers requested.
    pub sdr_rows_asked_for: u64,
    /// Packets of chunks sent again.
    pub sdr_retransmitted_packets: u64,
    /// Parity packets sent.
    pub sdr_repair_packets: u64,
    /// Missing chunks that were computed from parity.
    pub sdr_chunks_recovered: u64,
    /// Packets of such chunks.
    pub sdr_recovered_packets: u64,
    /// Messages that parity did not repair completely; their receiver requested the rest.
    pub sdr_fallbacks: u64,
    /// Submessages of such messages that parity did not repair.
    pub sdr_failed_submessages: u64,
    /// Submessages without parity, because all memory for parity was in use.
    pub sdr_unprotected_submessages: u64,
    /// Nanoseconds spent on computing chunks, if a clock is available.
    pub sdr_decode_ns: u64,
    /// Reports of received chunks.
    pub sdr_acks_sent: u64,
    /// Reports of missing chunks.
    pub sdr_nacks_sent: u64,
    /// Report entries about chunks that were never sent, and invalid reports.
    pub sdr_rejected_reports: u64,
}

/// Packets to one queue pair that an attacker who guesses would send; the NIC counts them for each queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Misfits {
    /// Requests with another PSN than the expected one, and answers to requests that are not outstanding. Loss and reordering cause them
    /// too.
    pub psn: u64,
    /// Requests under a key that does not permit them.
    pub rkey: u64,
    /// Packets without a valid tag, and MADs without a valid MAC, if the connection is authenticated.
    pub tag: u64,
}

/// Every counter, once.
macro_rules! all {
    ($use:ident) => {
        $use! {
            sent_pkts
            sent_bytes
            rcvd_pkts
            rcvd_bytes
            rx_write_requests
            rx_send_requests
            rx_read_requests
            rx_atomic_requests
            implied_nak_seq_err
            out_of_buffer
            out_of_sequence
            duplicate_request
            packet_seq_err
            sent_seq_naks
            rnr_naks_received
            rnr_nak_retry_err
            local_ack_timeout_err
            retry_exceeded_err
            rx_icrc_encapsulated
            req_remote_access_errors
            req_remote_invalid_request
            resp_remote_access_errors
            resp_remote_invalid_request
            resp_local_length_error
            req_cqe_error
            resp_cqe_error
            sent_requests
            retransmitted_packets
            stale_acks
            rx_not_for_us
            rx_malformed
            rx_bad_qp
            rx_wrong_source
            rx_unasked_answers
            rx_source_over_rate
            rx_auth_failed
            rx_auth_replayed
            rx_bad_pkey
            rx_bad_qkey
            rx_no_group
            rp_cnp_handled
            rp_cnp_ignored
            np_ecn_marked_roce_packets
            np_cnp_sent
            lowar_repairs_sent
            lowar_repairs_received
            lowar_recovered_packets
            lowar_held_packets
            lowar_failed_blocks
            lowar_unprotected_blocks
            lowar_ring_overruns
            lowar_rejected
            xp_partial_messages
            xp_preempted_messages
            xp_expired_messages
            xp_missing_bytes
            xp_late_packets
            xp_rejected_packets
            xp_expired_sends
            xp_dropped_reads
            xp_feedback_sent
            xp_feedback_received
            eqds_credit_sent
            eqds_credit_received
            eqds_credit_stale
            eqds_credit_rejected
            eqds_granted_bytes
            eqds_asked_again
            sdr_packets
            sdr_into_null
            sdr_old_generation
            sdr_duplicates
            sdr_rejected
            sdr_cts_sent
            sdr_cts_repeated
            sdr_asks_sent
            sdr_chunks_sent
            sdr_chunks_repeated
            sdr_chunk_timeouts
            sdr_chunks_asked_for
            sdr_rows_asked_for
            sdr_retransmitted_packets
            sdr_repair_packets
            sdr_chunks_recovered
            sdr_recovered_packets
            sdr_fallbacks
            sdr_failed_submessages
            sdr_unprotected_submessages
            sdr_decode_ns
            sdr_acks_sent
            sdr_nacks_sent
            sdr_rejected_reports
        }
    };
}

impl Counters {
    /// Every counter with its name, in the order of the fields.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        macro_rules! list {
            ($($name:ident)*) => { [$((stringify!($name), self.$name)),*] };
        }
        let list = all!(list);
        list.into_iter()
    }

    /// Adds the counters of another NIC of the same device.
    pub fn add(&mut self, other: &Counters) {
        macro_rules! add {
            ($($name:ident)*) => { $(self.$name += other.$name;)* };
        }
        all!(add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_listed_and_added() {
        let mut sum = Counters::default();
        assert_eq!(sum.iter().count() * size_of::<u64>(), size_of::<Counters>());
        let one = Counters { sent_pkts: 1, np_ecn_marked_roce_packets: 7, ..Counters::default() };
        sum.add(&one);
        sum.add(&one);
        assert_eq!((sum.sent_pkts, sum.np_ecn_marked_roce_packets), (2, 14));
    }
}
