/* What verbs have no words for: softnic's own calls. Link with -libverbs; the library under that name must be softnic's. */
#ifndef SOFTNICDV_H
#define SOFTNICDV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the device is a softnic. All devices of its library are. */
bool softnicdv_is_supported(struct ibv_device *device);

struct softnicdv_qp_init_attr {
	uint64_t comp_mask;	/* 0 */
	/* As the QP type says: "rc", "uc" or "ud"; for IBV_QPT_RC also, where the peer has it, "sr" or "sr:PACKETS", Selective Repeat with
	 * that window, and "lowar:R,C", C repair packets behind R packets; for IBV_QPT_RC and IBV_QPT_UC, "xp" or "xp:K=V,..", best
	 * effort with deadlines. NULL for the default. */
	const char *transport;
};

/* ibv_create_qp_ex() with a transport of the queue pair's own.
 * EOPNOTSUPP: there is no such transport, or not for this type. */
struct ibv_qp *softnicdv_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *init,
				   const struct softnicdv_qp_init_attr *dv);

enum softnicdv_qp_attr_mask {
	SOFTNICDV_QP_ATTR_FAILOVER = 1 << 0,
};

/* Whether a queue pair has a backup, at a second NIC of its host. */
enum softnicdv_protection {
	SOFTNICDV_PROTECTION_NONE = 0,		/* the device has no backup */
	SOFTNICDV_PROTECTION_UNPROTECTED = 1,	/* the queue pair has none: it is not connected, its peer has none or has not answered yet,
						 * or it is not IBV_QPT_RC with receives of its own */
	SOFTNICDV_PROTECTION_PROTECTED = 2,	/* it has one at both ends */
};

/* Where the sends of a protected queue pair are. */
enum softnicdv_failover_state {
	SOFTNICDV_FAILOVER_DEFAULT = 0,		/* they go by the device */
	SOFTNICDV_FAILOVER_MOVING = 1,		/* they wait for the peer's answer */
	SOFTNICDV_FAILOVER_FALLBACK = 2,	/* they go by the backup */
	SOFTNICDV_FAILOVER_WAIT_SIGNALED = 3,	/* the device works again: they go by the backup up to the next signaled one */
	SOFTNICDV_FAILOVER_WAIT_DRAINED = 4,	/* they wait until the backup is done */
	SOFTNICDV_FAILOVER_FAILED = 5,		/* they end in errors: see refusal */
};

/* Why a queue pair last left the device, or its backup. */
enum softnicdv_failover_reason {
	SOFTNICDV_FAILOVER_REASON_NONE = 0,	/* it never did */
	SOFTNICDV_FAILOVER_REASON_RETRIES = 1,	/* a work request ran out of retries */
	SOFTNICDV_FAILOVER_REASON_PORT = 2,	/* the port was down, or gone */
	SOFTNICDV_FAILOVER_REASON_PEER = 3,	/* the peer did */
};

/* Why a queue pair ended in errors although it had a backup. */
enum softnicdv_failover_refusal {
	SOFTNICDV_FAILOVER_REFUSAL_NONE = 0,		/* it did not */
	SOFTNICDV_FAILOVER_REFUSAL_UNSAFE = 1,		/* work was outstanding that must not be carried out twice: atomics, and what changes keys */
	SOFTNICDV_FAILOVER_REFUSAL_BOTH_PATHS = 2,	/* neither the device nor its backup reaches the peer */
	SOFTNICDV_FAILOVER_REFUSAL_PEER = 3,		/* the peer ended it */
	SOFTNICDV_FAILOVER_REFUSAL_SILENCE = 4,		/* the peer did not answer by the backup */
	SOFTNICDV_FAILOVER_REFUSAL_COUNT = 5,		/* the count of receives that the peer stated cannot be right */
	SOFTNICDV_FAILOVER_REFUSAL_KEY = 6,		/* the peer's backup has no region for a key of a work request */
};

struct softnicdv_qp_attr {
	uint64_t comp_mask;	/* in: SOFTNICDV_QP_ATTR_*, the fields behind transport that are wanted; out: those of them that were written */
	char transport[32];	/* the one in force: "sr", "lowar" or "xp" where the peer agreed; "" while it has not answered (from RTS on) */
	/* SOFTNICDV_QP_ATTR_FAILOVER */
	uint32_t protection;		/* enum softnicdv_protection; the rest is 0 unless the queue pair is protected */
	uint32_t failover_state;	/* enum softnicdv_failover_state */
	uint32_t failover_reason;	/* enum softnicdv_failover_reason */
	uint32_t failover_refusal;	/* enum softnicdv_failover_refusal */
	uint32_t failover_switches;	/* how often it left the device, or its backup */
	uint32_t reserved;
};

/* What verbs do not tell of a queue pair. Nothing behind transport is written unless comp_mask asks for it: set it. */
int softnicdv_query_qp(struct ibv_qp *qp, struct softnicdv_qp_attr *attr);

/* Every packet of an IBV_QPT_RC queue pair is authenticated by this secret, 16 to 4096 bytes, which the peer has too: a peer without it is
 * refused, and the queue pair ends in IBV_QPS_ERR with IBV_EVENT_QP_FATAL. Before the queue pair becomes ready to receive; it stays when the
 * queue pair is reset. Without this call it is that of SOFTNIC_KEY_FILE, where that is set.
 * EINVAL: the length is wrong, or the queue pair is connected. EOPNOTSUPP: another type, or the processor lacks what it takes. */
int softnicdv_set_qp_secret(struct ibv_qp *qp, const void *secret, size_t len);

/* A message of which a part is missing, from transports that complete it all the same: the status is IBV_WC_SUCCESS, byte_len the bytes
 * that were placed. This bit is then in wc_flags (or of ibv_wc_read_wc_flags()), and the reason in vendor_err. */
#define SOFTNICDV_WC_PARTIAL (1 << 30)

enum softnicdv_partial_reason {
	SOFTNICDV_PARTIAL_EXPIRED = 1,		/* its deadline passed */
	SOFTNICDV_PARTIAL_PREEMPTED = 2,	/* packets of a later message took its place */
	SOFTNICDV_PARTIAL_LAST = 3,		/* its last fragment came before others, which were lost or late */
};

/* What work of an "xp" queue pair may say beside the verb. */
struct softnicdv_best_effort {
	uint64_t comp_mask;		/* 0 */
	uint64_t timeout_ns;		/* from now: it ends then at the latest, with what has come or left, and all before it; 0: no deadline */
	const struct ibv_sge *bitmap;	/* of a receive or READ: memory for a bit a packet, the lowest bit of a byte first, which the NIC clears
					 * when the message begins; NULL: none. Then the list has one work request */
	uint32_t stride;		/* of a send or READ: blocks that each packet has a part of, a power of two up to 2048; 0 and 1: plain */
	uint32_t reserved;		/* 0 */
};

/* ibv_post_send() and ibv_post_recv() of work that is bound so.
 * EOPNOTSUPP: the queue pair is none of "xp", or the peer did not agree to it. */
int softnicdv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, const struct softnicdv_best_effort *bound,
			struct ibv_send_wr **bad_wr);
int softnicdv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, const struct softnicdv_best_effort *bound,
			struct ibv_recv_wr **bad_wr);

struct softnicdv_range {
	uint32_t offset;
	uint32_t length;
};

/* What is missing of a message of message_len bytes that was sent with this stride, by the bitmap of its receive: at most max ranges are
 * written, count says how many there are.
 * EINVAL: the queue pair was not yet ready to receive, or there is no such stride. */
int softnicdv_missing_ranges(struct ibv_qp *qp, const void *bitmap, size_t bitmap_len, uint32_t message_len, uint32_t stride,
			     struct softnicdv_range *ranges, size_t max, size_t *count);

struct softnicdv_counter {
	char name[56];
	uint64_t value;
};

/* What the NIC counted: at most max counters are written, count says how many there are. */
int softnicdv_query_counters(struct ibv_context *context, struct softnicdv_counter *counters, size_t max, size_t *count);

#ifdef __cplusplus
}
#endif

#endif
