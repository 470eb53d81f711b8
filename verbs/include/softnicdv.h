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
	 * that window, and "lowar:R,C", C repair packets behind R packets. NULL for the default. */
	const char *transport;
};

/* ibv_create_qp_ex() with a transport of the queue pair's own.
 * EOPNOTSUPP: there is no such transport, or not for this type. */
struct ibv_qp *softnicdv_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *init,
				   const struct softnicdv_qp_init_attr *dv);

struct softnicdv_qp_attr {
	uint64_t comp_mask;
	char transport[32];	/* the one in force: "sr" or "lowar" where the peer agreed; "" while it has not answered (from RTS on) */
};

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
