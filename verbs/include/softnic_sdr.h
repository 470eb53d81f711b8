/* SDR-RDMA (Khalilov et al., Table 1): messages over unreliable connections, with a bitmap of what has come. What a loss means is the
 * program's to decide. docs/sdr.md has the model and an example. Link with -libverbs; the library under that name must be softnic's.
 *
 * Calls that return a pointer return NULL with errno set when they fail; calls that return an int return 0 or an errno. All may be made
 * from any thread, but an object must not be used while another thread ends it.
 *
 * Any call that takes an object: EINVAL: it is NULL, where that is not allowed. ENOENT: there is no such object, or not any more: it was
 * destroyed, or its device was closed. EIO: it is an object of the parent, in the child of a fork. An address may serve a new object after
 * the old one went, and then it is the new one.
 * Any call that takes a comp_mask: EINVAL: it has bits that are not known here. Reserved fields are 0; else EINVAL.
 * Where setting up a queue pair is refused because something does not fit, a line on stderr says what, and what would, unless SOFTNIC_LOG is
 * off. */
#ifndef SOFTNIC_SDR_H
#define SOFTNIC_SDR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

struct softnic_sdr_context;
struct softnic_sdr_qp;
struct softnic_sdr_mr;
struct softnic_sdr_send;
struct softnic_sdr_recv;

/* ---- setting up ---- */

struct softnic_sdr_context_attr {
	uint64_t comp_mask;	/* 0 */
};

/* SDR-RDMA on an opened device; attr may be NULL. A NIC has one of these at a time. When the device is closed all that was made here goes,
 * too.
 * EBUSY: the NIC of the device has one already, perhaps by another ibv_context of this process. */
struct softnic_sdr_context *softnic_sdr_context_create(struct ibv_context *context, const struct softnic_sdr_context_attr *attr);

/* NULL is nothing to destroy. EBUSY: it has queue pairs or memory regions. */
int softnic_sdr_context_destroy(struct softnic_sdr_context *sdr);

/* In flags: one root key for all generations, as the paper has it. A late packet of a message whose slot serves a later one is then written
 * into the later one's memory, where nothing else keeps it out: see SOFTNIC_SDR_QP_UNSCREENED. */
#define SOFTNIC_SDR_QP_ONE_KEY (1u << 0)

/* In flags: nothing is looked at before it is placed, as on a NIC that is not softnic: what came before is written again, and what is late
 * goes where its key points. No bit is set for it all the same. */
#define SOFTNIC_SDR_QP_UNSCREENED (1u << 1)

/* 0 is the default everywhere. MTU, generations and channels are the same at both ends; the rest is how this end receives. */
struct softnic_sdr_qp_attr {
	uint64_t comp_mask;	/* 0 */
	uint64_t max_message;	/* bytes of the longest message; 16 MiB */
	uint32_t chunk;		/* bytes that a bit of the bitmap stands for, a multiple of the MTU; 64 KiB */
	uint32_t slots;		/* receives that can be posted at a time; 64 */
	uint32_t generations;	/* 1 to 16: how often slots come round before a late packet can be taken for one of a later message; 4 */
	uint32_t channels;	/* 1 to 16 flows that the packets of a message go by in turn, at the engines of the NIC in turn; 1 */
	/* How the 32 bits of a packet's immediate are divided: they add up to 32, the first two at least 1. All three 0: 10, 18 and 4. */
	uint8_t message_bits;	/* slots are at most two to this power */
	uint8_t packet_bits;	/* packets of a message, too */
	uint8_t user_bits;	/* of the program's immediate, in each packet; with 0 of 32 there is none */
	uint8_t reserved;	/* 0 */
	uint32_t mtu;		/* enum ibv_mtu; that of the port */
	uint32_t send_depth;	/* packets that wait on each flow to leave, 1 to 65536; 256 */
	uint32_t flags;		/* SOFTNIC_SDR_QP_*, or 0 */
};

/* A queue pair; attr may be NULL.
 * EINVAL: the attributes do not fit together: a chunk is no multiple of the MTU, the bits do not add up or do not suffice for the slots or
 * for the packets of the longest message, a number is out of its range, a flag is not known. ENOMEM: there is no memory for it, or the NIC has no more of what
 * it takes: generations * channels + 1 queue pairs, generations + 1 keys. */
struct softnic_sdr_qp *softnic_sdr_qp_create(struct softnic_sdr_context *sdr, const struct softnic_sdr_qp_attr *attr);

/* All that is sent and received by it ends, and all handles of that. NULL is nothing to destroy. */
int softnic_sdr_qp_destroy(struct softnic_sdr_qp *qp);

/* No information about a queue pair is longer. */
#define SOFTNIC_SDR_QP_INFO_MAX 2152

/* What the peer must be told, by whatever way the program has. *len is the room at buf before, and the number of bytes after the call.
 * ERANGE: there is not room enough, or buf is NULL; *len says how much it takes. */
int softnic_sdr_qp_info_get(struct softnic_sdr_qp *qp, void *buf, size_t *len);

/* Connects it with the queue pair that the len bytes at info are about. The path is as for ibv_create_ah(): the peer's GID, the index of
 * our own, is_global 1, port 1. Waits until the peer's MAC address is known.
 * EINVAL: the bytes are no such information, MTU, generations or channels are not the same there, the MTU is larger than the port's, or the
 * path cannot be. EISCONN: it is connected, or meets a peer. EHOSTUNREACH: nobody answers for the GID, or there is no way to it. ENETDOWN:
 * the device failed. */
int softnic_sdr_qp_connect(struct softnic_sdr_qp *qp, const void *info, size_t len, const struct ibv_ah_attr *path);

/* The number by which a peer meets it. */
int softnic_sdr_qp_number_get(struct softnic_sdr_qp *qp, uint32_t *number);

/* Begins to connect it with the queue pair of this number, by a path as for softnic_sdr_qp_connect(); the two ends tell each other the rest.
 * Both ends make the call, with each other's number; softnic_sdr_qp_is_met() says when it is done. There is room for four generations of
 * three channels, or two of six.
 * EINVAL: the number is that of no queue pair, it has more generations and channels than there is room for, the MTU is larger than the
 * port's, or the path cannot be. EISCONN: it is connected, or meets a peer. EHOSTUNREACH, ENETDOWN: as for softnic_sdr_qp_connect(). */
int softnic_sdr_qp_meet(struct softnic_sdr_qp *qp, uint32_t peer, const struct ibv_ah_attr *path);

/* 0: it is connected. Where the program's calls move frames this is one of them.
 * EAGAIN: not yet. ECONNREFUSED: the peer knows nothing of SDR, or has not answered for more than a second; it may still, so the call may be
 * made again. EINVAL: the two do not fit: MTU, generations or channels are not the same there. ENOTCONN: no peer was named. EIO: the device
 * failed. */
int softnic_sdr_qp_is_met(struct softnic_sdr_qp *qp);

/* What a queue pair counted since it was made. */
struct softnic_sdr_counters {
	uint64_t comp_mask;	/* 0, before the call */
	uint64_t packets;	/* that were placed */
	uint64_t into_null;	/* late packets of receives that were completed, into slots that point nowhere */
	uint64_t old_generation; /* late packets of messages whose slot serves a later one */
	uint64_t duplicates;	/* packets that had come before */
	uint64_t rejected;	/* packets and control messages that cannot be */
	uint64_t cts_sent;	/* control messages that told the peer of receives */
	uint64_t cts_repeated;	/* those of them that said nothing new */
	uint64_t asks_sent;	/* control messages that asked the peer for receives */
};

int softnic_sdr_qp_counters_get(struct softnic_sdr_qp *qp, struct softnic_sdr_counters *counters);

/* Registers memory for messages; access as for ibv_reg_mr(): none to send from, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE to receive
 * in.
 * EINVAL: the rights are unknown or cannot be granted together, or addr is NULL with a length. EOPNOTSUPP: on-demand paging. EFAULT: the memory is not
 * there, or not to be used so. ENOMEM: there are as many regions as can be. */
struct softnic_sdr_mr *softnic_sdr_mr_reg(struct softnic_sdr_context *sdr, void *addr, size_t length, int access);

/* From now on nobody touches the memory. What is still to be sent from it fails, and its queue pair. NULL is nothing to deregister.
 * EBUSY: receives are posted in it. */
int softnic_sdr_mr_dereg(struct softnic_sdr_mr *mr);

/* ---- sending: the n-th message lands in the peer's n-th receive, and waits until that is posted ---- */

/* In comp_mask: imm is given. It is a number, in host byte order. */
#define SOFTNIC_SDR_WR_IMM (1ull << 0)

struct softnic_sdr_send_wr {
	uint64_t comp_mask;	/* SOFTNIC_SDR_WR_IMM, or 0 */
	struct softnic_sdr_mr *mr;
	const void *addr;	/* inside of mr; anything where there are no bytes */
	size_t length;
	uint32_t imm;
	uint32_t reserved;	/* 0 */
};

/* Sends a message, once. The memory is the NIC's until softnic_sdr_send_poll() says 0. send may be NULL, where nobody wants to know.
 * EINVAL: the bytes do not lie in mr, or mr is of another context. ENOTCONN: the queue pair is not connected. EMSGSIZE: the peer takes no
 * message so long. EOPNOTSUPP: the peer's immediates have no bits for the program's. */
int softnic_sdr_send_post(struct softnic_sdr_qp *qp, const struct softnic_sdr_send_wr *wr, struct softnic_sdr_send **send);

struct softnic_sdr_start_wr {
	uint64_t comp_mask;	/* SOFTNIC_SDR_WR_IMM, or 0 */
	size_t length;		/* of the whole message */
	uint32_t imm;
	uint32_t reserved;	/* 0 */
};

/* Starts a message whose parts follow, in any order and as often as need be.
 * ENOTCONN, EMSGSIZE, EOPNOTSUPP: as for softnic_sdr_send_post(). */
int softnic_sdr_send_stream_start(struct softnic_sdr_qp *qp, const struct softnic_sdr_start_wr *wr, struct softnic_sdr_send **send);

struct softnic_sdr_continue_wr {
	uint64_t comp_mask;	/* 0 */
	struct softnic_sdr_mr *mr;
	const void *addr;	/* inside of mr */
	size_t length;
	uint64_t offset;	/* of these bytes in the message */
};

/* Sends a part of a message: whole packets of it, so offset is a multiple of the MTU, and length is one, too, or reaches to the end.
 * EINVAL: they are not, or lie outside of the message; the bytes do not lie in mr; mr is of another context; the stream has ended. */
int softnic_sdr_send_stream_continue(struct softnic_sdr_send *send, const struct softnic_sdr_continue_wr *wr);

/* No more parts follow. The handle stays until softnic_sdr_send_poll() ends it.
 * EINVAL: the stream has ended, or is none. */
int softnic_sdr_send_stream_end(struct softnic_sdr_send *send);

/* 0: all of it has left this machine (whether it came only the peer knows), and its memory is the program's again. EAGAIN: not yet. Of a
 * stream that has not ended it says so of the parts so far. Any other message is over with any answer but EAGAIN, and its handle is gone.
 * EIO: the queue pair cannot send any more, because memory was not to be read or the device failed. The memory is the program's again
 * after softnic_sdr_mr_dereg() or softnic_sdr_qp_destroy(). */
int softnic_sdr_send_poll(struct softnic_sdr_send *send);

/* ---- receiving ---- */

struct softnic_sdr_recv_wr {
	uint64_t comp_mask;	/* 0 */
	struct softnic_sdr_mr *mr;
	void *addr;		/* inside of mr */
	size_t length;		/* that of the message, or more by whole packets */
};

/* Posts memory for the next message, also before the queue pair is connected.
 * EINVAL: the memory does not lie in mr, or mr is of another context. EACCES: mr may not be written by a peer. EMSGSIZE: it is longer than
 * max_message. ENOMEM: as many receives are posted as there are slots, and the oldest is not completed. */
int softnic_sdr_recv_post(struct softnic_sdr_qp *qp, const struct softnic_sdr_recv_wr *wr, struct softnic_sdr_recv **recv);

/* The bitmap: a bit for each chunk, the first in the lowest bit of the first word, in words of 64; those behind the last chunk stay 0. Bits
 * are set while the program looks on, after all bytes of their chunk are in place; who reads a word with acquire order, as the functions
 * below do, and finds a bit set sees the bytes. The words are not to be written, and are there until softnic_sdr_recv_complete().
 *
 * One call suffices: no further one is needed for bits to be set. Where the program's calls move frames (docs/verbs.md, "Who moves frames")
 * this is one of them, so a program that makes it again now and then need not wait until a thread of the NIC takes over. */
int softnic_sdr_recv_bitmap_get(struct softnic_sdr_recv *recv, const uint64_t **bitmap, size_t *chunks);

/* The sender's immediate, once all pieces of it have come. A sender that gives none sends zeros in the packets that it sends anyway, so a
 * program asks only where it expects one.
 * EAGAIN: not all of it is there yet. */
int softnic_sdr_recv_imm_get(struct softnic_sdr_recv *recv, uint32_t *imm);

/* Completes a receive, whatever is missing: from now on nothing is written to its memory. The handle and the bitmap are gone, whatever this
 * returns.
 * EIO: SDR-RDMA is no longer on the NIC. */
int softnic_sdr_recv_complete(struct softnic_sdr_recv *recv);

/* ---- reliable messages: what is lost comes again (docs/sdr.md, "Reliable messages") ---- */

/* How. With parity each k chunks have m more, and most losses cost no round trip. */
enum softnic_sdr_scheme {
	SOFTNIC_SDR_SCHEME_SR = 1,	/* a chunk that is not acknowledged in time is sent again */
	SOFTNIC_SDR_SCHEME_NACK = 2,	/* the receiver asks for what is missing; timeouts stay behind that */
	SOFTNIC_SDR_SCHEME_EC = 3,	/* parity by a Reed-Solomon code: any m lost chunks of k + m are computed */
	SOFTNIC_SDR_SCHEME_XOR = 4,	/* parity by exclusive or: one lost chunk in each of m groups is */
};

/* 0 is the default everywhere. Scheme, k, m, interleave and the chunk are the same at both ends, and what is the same for a queue pair of
 * SDR. */
struct softnic_sdr_reliable_attr {
	uint64_t comp_mask;	/* 0 */
	struct softnic_sdr_qp_attr qp;	/* as for softnic_sdr_qp_create(); with parity slots are of submessages, two for each k chunks */
	uint32_t scheme;	/* enum softnic_sdr_scheme; SOFTNIC_SDR_SCHEME_SR */
	uint8_t k;		/* data chunks of a submessage; 32 with parity, and without there is none */
	uint8_t m;		/* its parity chunks; 8, or none if k is given */
	uint16_t alpha_percent;	/* what queues may add to a round trip: a chunk is sent again after RTT + alpha * RTT; 200 */
	uint64_t rtt_ns;	/* the round trip, as long as none was measured; 10 ms */
	uint64_t timeout_ns;	/* after this time a message that is not carried over ends the connection; 10 s */
	uint64_t rate_bps;	/* bits that the line carries in a second; unknown */
	uint64_t parity_pool;	/* bytes of memory for parity, each way; 64 MiB */
	uint32_t acks_per_rtt;	/* reports of the receiver in a round trip, 1 to 1000; 16 */
	uint32_t reordering;	/* chunks behind a missing one that come before it is asked for; 3 */
	uint64_t interleave;	/* with parity: each of so many submessages has every so manieth chunk of them, to 255; 1 is off, and the default */
};

/* A queue pair whose messages are reliable; attr may be NULL. It is connected, counted and destroyed by the calls that other queue pairs
 * are, and has none of the calls for sends and receives above: these are EOPNOTSUPP.
 * EINVAL, ENOMEM: as for softnic_sdr_qp_create(); the scheme is not known, or there is no such code. */
struct softnic_sdr_qp *softnic_sdr_reliable_create(struct softnic_sdr_context *sdr, const struct softnic_sdr_reliable_attr *attr);

struct softnic_sdr_reliable_wr {
	uint64_t comp_mask;	/* 0 */
	struct softnic_sdr_mr *mr;
	void *addr;		/* inside of mr; not written by softnic_sdr_reliable_write() */
	size_t length;
};

/* Posts a WRITE into the peer's next receive, which must be as long. The memory is the NIC's until softnic_sdr_reliable_poll() has told of
 * the message of this number, from 0; number may be NULL.
 * EOPNOTSUPP: the queue pair is not reliable. ENOTCONN: it is not connected. ECONNRESET: the connection is over. EINVAL, EMSGSIZE: as for
 * softnic_sdr_send_post(). */
int softnic_sdr_reliable_write(struct softnic_sdr_qp *qp, const struct softnic_sdr_reliable_wr *wr, uint64_t *number);

/* Posts memory for the peer's next WRITE, also before the queue pair is connected. Numbers count from 0, apart from those of WRITEs.
 * EOPNOTSUPP, ECONNRESET: as for softnic_sdr_reliable_write(). EINVAL, EACCES, EMSGSIZE, ENOMEM: as for softnic_sdr_recv_post(). */
int softnic_sdr_reliable_receive(struct softnic_sdr_qp *qp, const struct softnic_sdr_reliable_wr *wr, uint64_t *number);

#define SOFTNIC_SDR_WRITTEN 0	/* the peer has all of it */
#define SOFTNIC_SDR_RECEIVED 1	/* all of it is there */

struct softnic_sdr_completion {
	uint64_t number;	/* of the message */
	uint32_t opcode;	/* SOFTNIC_SDR_WRITTEN or SOFTNIC_SDR_RECEIVED */
	/* 0, or why not: ETIMEDOUT: it was not whole in time; EMSGSIZE: the peer's receive has another length; EIO: the device failed, or
	 * memory was not to be read. Then the connection is over, and all that is posted with it. */
	int32_t status;
};

/* Takes messages that are over, at most count; how many. Where the program's calls move frames this is one of them. In any order.
 * A negative errno: -EOPNOTSUPP: the queue pair is not reliable. */
int softnic_sdr_reliable_poll(struct softnic_sdr_qp *qp, int count, struct softnic_sdr_completion *completions);

/* What a reliable queue pair counted since it was made, beside softnic_sdr_counters. */
struct softnic_sdr_reliable_counters {
	uint64_t comp_mask;	/* 0, before the call */
	uint64_t chunks_sent;	/* the first time */
	uint64_t chunks_repeated; /* that were sent again */
	uint64_t packets_repeated; /* of these */
	uint64_t timeouts;	/* chunks that were sent again because their time was over */
	uint64_t chunks_asked_for; /* because the peer asked for them */
	uint64_t parity_packets; /* that were sent */
	uint64_t chunks_recovered; /* that did not come and were computed */
	uint64_t packets_recovered; /* of these */
	uint64_t fallbacks;	/* messages of which parity did not repair all */
	uint64_t failed_submessages; /* of these */
	uint64_t unprotected;	/* submessages for whose parity there was no memory */
	uint64_t decode_ns;	/* that computing lost chunks took */
	uint64_t acks_sent;	/* reports of what has come */
	uint64_t nacks_sent;	/* reports of what is missing */
	uint64_t rejected;	/* what reports said of chunks that were never sent */
};

/* EOPNOTSUPP: the queue pair is not reliable. */
int softnic_sdr_reliable_counters_get(struct softnic_sdr_qp *qp, struct softnic_sdr_reliable_counters *counters);

/* Whether a chunk has come. */
static inline bool softnic_sdr_bitmap_is_set(const uint64_t *bitmap, size_t chunk)
{
	return __atomic_load_n(&bitmap[chunk / 64], __ATOMIC_ACQUIRE) >> (chunk % 64) & 1;
}

/* Whether all chunks have come. */
static inline bool softnic_sdr_bitmap_is_full(const uint64_t *bitmap, size_t chunks)
{
	for (size_t i = 0; i < chunks / 64; i++)
		if (__atomic_load_n(&bitmap[i], __ATOMIC_ACQUIRE) != UINT64_MAX)
			return false;
	return chunks % 64 == 0 || __atomic_load_n(&bitmap[chunks / 64], __ATOMIC_ACQUIRE) == (UINT64_C(1) << chunks % 64) - 1;
}

#ifdef __cplusplus
}
#endif

#endif
