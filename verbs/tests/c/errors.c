// Bad input: what is refused, with which errno, and which completions mistakes have.
// seconds: 60

#include "common.h"

static void queries(void)
{
	PART("queries of what is not there");
	struct end e;
	open_end(&e, 0);
	union ibv_gid gid;
	EQ(ibv_query_gid(e.context, 1, 10000, &gid), -1);
	EQ(ibv_query_gid(e.context, 1, -1, &gid), -1);
	EQ(ibv_query_gid(e.context, 2, 0, &gid), -1);
	struct ibv_gid_entry entry;
	CHECK(ibv_query_gid_ex(e.context, 1, 10000, &entry, 0) != 0);
	OK(ibv_query_gid_ex(e.context, 1, e.gid_index, &entry, 0));
	EQ(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	CHECK(!memcmp(entry.gid.raw, e.gid.raw, 16));
	PART("an empty place of the GID table: zeros, and ENODATA");
	struct ibv_port_attr table;
	OK(ibv_query_port(e.context, 1, &table));
	int empty = 0;
	for (int i = 0; i < table.gid_tbl_len; i++) {
		static const union ibv_gid none;
		OK(ibv_query_gid(e.context, 1, i, &gid));
		if (memcmp(gid.raw, none.raw, 16)) {
			OK(ibv_query_gid_ex(e.context, 1, i, &entry, 0));
			continue;
		}
		EQ(ibv_query_gid_ex(e.context, 1, i, &entry, 0), ENODATA);
		empty++;
	}
	CHECK(empty > 0);
	EQ(ibv_query_gid(e.context, 1, table.gid_tbl_len, &gid), -1);
	PART("who made it is told, and its descriptor is one");
	struct ibv_device_attr device;
	OK(ibv_query_device(e.context, &device));
	CHECK(device.vendor_id != 0);
	int copy = dup(e.context->cmd_fd);
	CHECK(copy >= 0);
	close(copy);
	__be16 pkey;
	OK(ibv_query_pkey(e.context, 1, 0, &pkey));
	EQ(ntohs(pkey), 0xffff);
	EQ(ibv_query_pkey(e.context, 1, 10000, &pkey), -1);
	struct ibv_port_attr port;
	EQ(ibv_query_port(e.context, 2, &port), EINVAL);
	EQ(ibv_query_port(e.context, 0, &port), EINVAL);
	OK(ibv_query_port(e.context, 1, &port));
	EQ(port.state, IBV_PORT_ACTIVE);
	EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	close_end(&e);
}

static void in_use(void)
{
	PART("what is in use is not destroyed: EBUSY");
	struct end e;
	open_end(&e, 0);
	EQ(ibv_dealloc_pd(e.pd), EBUSY);
	EQ(ibv_destroy_comp_channel(e.channel), EBUSY);
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct ibv_srq *srq = MADE(ibv_create_srq(e.pd, &srq_init));
	e.srq = srq;
	struct ibv_qp *qp = make_qp(&e, IBV_QPT_RC);
	EQ(ibv_destroy_cq(e.cq), EBUSY);
	EQ(ibv_destroy_srq(srq), EBUSY);
	OK(ibv_dereg_mr(e.mr));
	EQ(ibv_dealloc_pd(e.pd), EBUSY);
	OK(ibv_destroy_qp(qp));
	EQ(ibv_dealloc_pd(e.pd), EBUSY);
	OK(ibv_destroy_srq(srq));
	struct ibv_ah_attr path = path_to(&e, &e);
	struct ibv_ah *ah = MADE(ibv_create_ah(e.pd, &path));
	EQ(ibv_dealloc_pd(e.pd), EBUSY);
	OK(ibv_destroy_ah(ah));
	// All that was refused is as it was.
	e.mr = MADE(ibv_reg_mr(e.pd, e.memory, MEMORY, ALL_RIGHTS));
	close_end(&e);
}

static void too_large(void)
{
	PART("attributes that are too large: EINVAL");
	struct end e;
	open_end(&e, 0);
	struct ibv_device_attr most;
	OK(ibv_query_device(e.context, &most));
	CHECK(most.max_qp_wr > 0 && most.max_cqe > 0 && most.max_sge > 0 && most.max_srq_wr > 0);
	REFUSED(ibv_create_cq(e.context, most.max_cqe + 1, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(e.context, 0, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(e.context, -1, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(e.context, 16, NULL, NULL, e.context->num_comp_vectors), EINVAL);
	struct ibv_qp_init_attr init = qp_options(&e, IBV_QPT_RC);
	init.cap.max_send_wr = most.max_qp_wr + 1;
	REFUSED(ibv_create_qp(e.pd, &init), EINVAL);
	init = qp_options(&e, IBV_QPT_RC);
	init.cap.max_recv_wr = most.max_qp_wr + 1;
	REFUSED(ibv_create_qp(e.pd, &init), EINVAL);
	init = qp_options(&e, IBV_QPT_RC);
	init.cap.max_send_sge = most.max_sge + 1;
	REFUSED(ibv_create_qp(e.pd, &init), EINVAL);
	init = qp_options(&e, IBV_QPT_RC);
	init.cap.max_recv_sge = most.max_sge + 1;
	REFUSED(ibv_create_qp(e.pd, &init), EINVAL);
	init = qp_options(&e, IBV_QPT_RC);
	init.cap.max_inline_data = 1 << 20;
	REFUSED(ibv_create_qp(e.pd, &init), EINVAL);
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = most.max_srq_wr + 1, .max_sge = 1}};
	REFUSED(ibv_create_srq(e.pd, &srq), EINVAL);
	srq = (struct ibv_srq_init_attr){.attr = {.max_wr = 16, .max_sge = most.max_srq_sge + 1}};
	REFUSED(ibv_create_srq(e.pd, &srq), EINVAL);
	PART("a type of queue pair that nobody knows");
	init = qp_options(&e, IBV_QPT_RC);
	init.qp_type = 99;
	errno = 0;
	CHECK(!ibv_create_qp(e.pd, &init));
	CHECK(errno == EINVAL || errno == EOPNOTSUPP);
	PART("the largest that is offered is there");
	init = qp_options(&e, IBV_QPT_RC);
	init.cap.max_send_wr = init.cap.max_recv_wr = most.max_qp_wr;
	init.cap.max_send_sge = init.cap.max_recv_sge = most.max_sge;
	struct ibv_qp *qp = MADE(ibv_create_qp(e.pd, &init));
	CHECK(init.cap.max_send_wr >= (uint32_t)most.max_qp_wr && init.cap.max_recv_sge >= (uint32_t)most.max_sge);
	OK(ibv_destroy_qp(qp));
	OK(ibv_destroy_cq(MADE(ibv_create_cq(e.context, most.max_cqe, NULL, NULL, 0))));
	close_end(&e);
}

static void regions(void)
{
	PART("memory that cannot be registered");
	struct end e;
	open_end(&e, 0);
	// Who may write from afar may write from here.
	REFUSED(ibv_reg_mr(e.pd, e.memory, 4096, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	REFUSED(ibv_reg_mr(e.pd, e.memory, 4096, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
	errno = 0;
	CHECK(!ibv_reg_mr(e.pd, e.memory, SIZE_MAX - 4096, IBV_ACCESS_LOCAL_WRITE) && errno != 0);
	errno = 0;
	CHECK(!ibv_reg_mr(e.pd, (void *)4096, 4096, IBV_ACCESS_LOCAL_WRITE) && errno != 0);
	CHECK(!ibv_reg_mr(e.pd, NULL, 4096, IBV_ACCESS_LOCAL_WRITE));
	close_end(&e);
}

static void wrong_state(void)
{
	PART("posting in a state that does not take it: EINVAL, and bad_wr says which");
	struct end e[2];
	open_both(e);
	for (int i = 0; i < 2; i++)
		e[i].qp = make_qp(&e[i], IBV_QPT_RC);
	struct ibv_qp *qp = e[0].qp;
	struct ibv_sge sge = at(&e[0], 0, 8);
	struct ibv_recv_wr recv = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad_recv = NULL;
	struct ibv_send_wr send = work(IBV_WR_SEND, 2, &sge), *bad_send = NULL;
	EQ(ibv_post_recv(qp, &recv, &bad_recv), EINVAL);
	CHECK(bad_recv == &recv);
	EQ(ibv_post_send(qp, &send, &bad_send), EINVAL);
	CHECK(bad_send == &send);
	OK(to_init(qp, ALL_RIGHTS));
	bad_send = NULL;
	EQ(ibv_post_send(qp, &send, &bad_send), EINVAL);
	CHECK(bad_send == &send);
	OK(ibv_post_recv(qp, &recv, &bad_recv));
	OK(to_rtr(qp, &e[0], &e[1], e[1].qp->qp_num));
	bad_send = NULL;
	EQ(ibv_post_send(qp, &send, &bad_send), EINVAL);
	CHECK(bad_send == &send);
	PART("in the error state work is taken, and flushed");
	OK(to_state(qp, IBV_QPS_ERR));
	DONE(e[0].cq, 1, IBV_WC_WR_FLUSH_ERR);
	OK(ibv_post_send(qp, &send, &bad_send));
	DONE(e[0].cq, 2, IBV_WC_WR_FLUSH_ERR);
	OK(ibv_post_recv(qp, &recv, &bad_recv));
	DONE(e[0].cq, 1, IBV_WC_WR_FLUSH_ERR);
	PART("after a reset it is as new");
	OK(to_state(qp, IBV_QPS_RESET));
	EQ(qp->state, IBV_QPS_RESET);
	connect_with(e, ALL_RIGHTS, USUAL);
	exchange(e, 3);
	destroy_qps(e);
	close_both(e);
}

static void bad_work(void)
{
	PART("work requests that are wrong in themselves; those before them are done");
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	struct ibv_sge many[64];
	for (int i = 0; i < 64; i++)
		many[i] = at(&e[0], i * 8, 8);
	struct ibv_send_wr third = work(IBV_WR_RDMA_WRITE, 3, many), second = work(IBV_WR_RDMA_WRITE, 2, many);
	struct ibv_send_wr first = work(IBV_WR_RDMA_WRITE, 1, many), *bad = NULL;
	first.wr.rdma.remote_addr = second.wr.rdma.remote_addr = third.wr.rdma.remote_addr = address(&e[1], 0);
	first.wr.rdma.rkey = second.wr.rdma.rkey = third.wr.rdma.rkey = e[1].mr->rkey;
	first.next = &second;
	second.next = &third;
	second.num_sge = 64;
	CHECK(ibv_post_send(e[0].qp, &first, &bad) != 0);
	CHECK(bad == &second);
	DONE(e[0].cq, 1, IBV_WC_SUCCESS);
	NOTHING(e[0].cq, 20);
	PART("an opcode that nobody knows");
	second.num_sge = 1;
	second.opcode = 99;
	bad = NULL;
	CHECK(ibv_post_send(e[0].qp, &second, &bad) != 0);
	CHECK(bad == &second);
	PART("more inline data than was asked for");
	uint8_t data[4096] = {0};
	struct ibv_sge sge = {.addr = (uintptr_t)data, .length = sizeof(data)};
	struct ibv_send_wr large = work(IBV_WR_SEND, 4, &sge);
	large.send_flags |= IBV_SEND_INLINE;
	bad = NULL;
	CHECK(ibv_post_send(e[0].qp, &large, &bad) != 0);
	CHECK(bad == &large);
	PART("a receive with too many pieces");
	struct ibv_recv_wr recv = {.wr_id = 5, .sg_list = many, .num_sge = 64}, *bad_recv = NULL;
	CHECK(ibv_post_recv(e[0].qp, &recv, &bad_recv) != 0);
	CHECK(bad_recv == &recv);
	exchange(e, 6);
	PART("READ and atomics are not for UC");
	destroy_qps(e);
	connect_new(e, IBV_QPT_UC);
	CHECK(post_rdma(e[0].qp, IBV_WR_RDMA_READ, 1, at(&e[0], 0, 8), address(&e[1], 0), e[1].mr->rkey) != 0);
	CHECK(post_rdma(e[0].qp, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, at(&e[0], 0, 8), address(&e[1], 0), e[1].mr->rkey) != 0);
	exchange(e, 7);
	destroy_qps(e);
	close_both(e);
}

static void told_again(void)
{
	PART("what a queue is said to hold stays, when a program asks for that with the same struct");
	struct end e;
	open_end(&e, 0);
	struct ibv_qp_init_attr init = qp_options(&e, IBV_QPT_RC);
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 100, .max_sge = 1}};
	init.cap.max_send_wr = 100;
	init.cap.max_recv_wr = 1;
	struct ibv_qp_cap first = {0};
	uint32_t first_shared = 0;
	for (int i = 0; i < 10; i++) {
		struct ibv_qp *qp = MADE(ibv_create_qp(e.pd, &init));
		struct ibv_srq *srq = MADE(ibv_create_srq(e.pd, &shared));
		if (i == 0) {
			first = init.cap;
			first_shared = shared.attr.max_wr;
			CHECK(first.max_send_wr >= 100 && first.max_recv_wr >= 1 && first_shared >= 100);
		}
		EQ(init.cap.max_send_wr, first.max_send_wr);
		EQ(init.cap.max_recv_wr, first.max_recv_wr);
		EQ(shared.attr.max_wr, first_shared);
		CHECK(memcmp(&init.cap, &first, sizeof first) == 0);
		OK(ibv_destroy_qp(qp));
		OK(ibv_destroy_srq(srq));
	}
	close_end(&e);
}

static void full(void)
{
	PART("a full queue: ENOMEM, after as many as it says that it holds");
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_RC);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	OK(ibv_query_qp(e[0].qp, &attr, IBV_QP_CAP, &init));
	CHECK(attr.cap.max_send_wr >= DEPTH && attr.cap.max_recv_wr >= DEPTH);
	int sent = 0, received = 0, refused;
	// There is no receive, so nothing of it is done.
	while ((refused = post_send(e[0].qp, sent, at(&e[0], 0, 8))) == 0)
		sent++;
	EQ(refused, ENOMEM);
	EQ(sent, attr.cap.max_send_wr);
	while ((refused = post_recv(e[0].qp, received, at(&e[0], 0, 8))) == 0)
		received++;
	EQ(refused, ENOMEM);
	EQ(received, attr.cap.max_recv_wr);
	PART("once there are receives, all of it is done");
	for (int i = 0, posted = 0; i < sent; i++) {
		while (posted < sent && post_recv(e[1].qp, posted, at(&e[1], 0, 8)) == 0)
			posted++;
		DONE(e[0].cq, i, IBV_WC_SUCCESS);
		DONE(e[1].cq, i, IBV_WC_SUCCESS);
	}
	OK(post_recv(e[1].qp, 1, at(&e[1], 0, 8)));
	OK(post_send(e[0].qp, 2, at(&e[0], 0, 8)));
	DONE(e[0].cq, 2, IBV_WC_SUCCESS);
	DONE(e[1].cq, 1, IBV_WC_SUCCESS);
	destroy_qps(e);
	close_both(e);
}

static void modify(void)
{
	PART("ibv_modify_qp: attributes that are missing, too many, or out of range");
	struct end e[2];
	open_both(e);
	for (int i = 0; i < 2; i++)
		e[i].qp = make_qp(&e[i], IBV_QPT_RC);
	struct ibv_qp *qp = e[0].qp;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_RIGHTS, .timeout = 14};
	int all = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	EQ(ibv_modify_qp(qp, &attr, all & ~IBV_QP_PORT), EINVAL);
	EQ(ibv_modify_qp(qp, &attr, all & ~IBV_QP_ACCESS_FLAGS), EINVAL);
	EQ(ibv_modify_qp(qp, &attr, all | IBV_QP_TIMEOUT), EINVAL);
	attr.port_num = 2;
	EQ(ibv_modify_qp(qp, &attr, all), EINVAL);
	attr.port_num = 1;
	attr.pkey_index = 1000;
	EQ(ibv_modify_qp(qp, &attr, all), EINVAL);
	EQ(qp->state, IBV_QPS_RESET);
	EQ(state_of(qp), IBV_QPS_RESET);
	EQ(to_rts(qp, USUAL), EINVAL);
	EQ(to_rtr(qp, &e[0], &e[1], e[1].qp->qp_num), EINVAL);
	OK(to_init(qp, ALL_RIGHTS));
	EQ(qp->state, IBV_QPS_INIT);
	EQ(state_of(qp), IBV_QPS_INIT);
	EQ(to_rts(qp, USUAL), EINVAL);
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = e[1].qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = path_to(&e[0], &e[1]),
	};
	all = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
	      IBV_QP_MIN_RNR_TIMER;
	EQ(ibv_modify_qp(qp, &rtr, all & ~IBV_QP_AV), EINVAL);
	EQ(ibv_modify_qp(qp, &rtr, all & ~IBV_QP_DEST_QPN), EINVAL);
	EQ(ibv_modify_qp(qp, &rtr, all | IBV_QP_SQ_PSN), EINVAL);
	rtr.path_mtu = 9;
	EQ(ibv_modify_qp(qp, &rtr, all), EINVAL);
	rtr.path_mtu = IBV_MTU_1024;
	rtr.ah_attr.is_global = 0; // RoCE has no other way than by GIDs
	EQ(ibv_modify_qp(qp, &rtr, all), EINVAL);
	rtr.ah_attr.is_global = 1;
	rtr.ah_attr.grh.sgid_index = 200;
	EQ(ibv_modify_qp(qp, &rtr, all), EINVAL);
	rtr.ah_attr.grh.sgid_index = e[0].gid_index;
	EQ(state_of(qp), IBV_QPS_INIT);
	OK(ibv_modify_qp(qp, &rtr, all));
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	all = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
	EQ(ibv_modify_qp(qp, &rts, all & ~IBV_QP_TIMEOUT), EINVAL);
	EQ(ibv_modify_qp(qp, &rts, all | IBV_QP_DEST_QPN), EINVAL);
	OK(ibv_modify_qp(qp, &rts, all));
	EQ(state_of(qp), IBV_QPS_RTS);
	PART("what was set is what is told");
	struct ibv_qp_attr told;
	struct ibv_qp_init_attr init;
	OK(ibv_query_qp(qp, &told, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_DEST_QPN | IBV_QP_PATH_MTU | IBV_QP_CAP,
			&init));
	EQ(told.timeout, 14);
	EQ(told.retry_cnt, 7);
	EQ(told.dest_qp_num, e[1].qp->qp_num);
	EQ(told.path_mtu, IBV_MTU_1024);
	CHECK(told.cap.max_send_wr >= DEPTH && init.cap.max_recv_wr >= DEPTH);
	CHECK(init.send_cq == e[0].cq && init.recv_cq == e[0].cq && init.qp_type == IBV_QPT_RC);
	destroy_qps(e);
	close_both(e);
}

// A request of the first end must fail like this, and leave the memory at the second as it is.
static void fails(struct end e[2], enum ibv_wr_opcode opcode, struct ibv_sge sge, uint64_t to, uint32_t rkey, int rights,
		  enum ibv_wc_status status)
{
	for (int i = 0; i < 2; i++)
		e[i].qp = make_qp(&e[i], IBV_QPT_RC);
	connect_with(e, rights, USUAL);
	uint8_t before[64];
	memcpy(before, e[1].memory, sizeof(before));
	memset(e[0].memory, 0x77, 64);
	OK(post_rdma(e[0].qp, opcode, 1, sge, to, rkey));
	// What comes behind it is flushed; where the error is found in an answer it may have been done all the same.
	OK(post_rdma(e[0].qp, IBV_WR_RDMA_WRITE, 2, at(&e[0], 0, 8), address(&e[1], 64), e[1].mr->rkey));
	struct ibv_wc wc = NEXT(e[0].cq);
	EQ(wc.wr_id, 1);
	// A right that the queue pair lacks is an invalid request to some, and an access violation to others.
	if (wc.status != status && !(rights != ALL_RIGHTS && wc.status == IBV_WC_REM_INV_REQ_ERR))
		FAIL("it ends with %s, not with %s", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
	EQ(wc.qp_num, e[0].qp->qp_num);
	DONE(e[0].cq, 2, IBV_WC_WR_FLUSH_ERR);
	EQ(state_of(e[0].qp), IBV_QPS_ERR);
	CHECK(!memcmp(before, e[1].memory, sizeof(before)));
	destroy_qps(e);
}

static void keys(void)
{
	struct end e[2];
	open_both(e);
	fill(e[1].memory, 64, 9);
	uint64_t to = address(&e[1], 0);
	uint32_t rkey = e[1].mr->rkey;
	struct ibv_sge good = at(&e[0], 0, 32), bad = good;
	PART("an lkey that is none: IBV_WC_LOC_PROT_ERR");
	bad.lkey = ~good.lkey;
	fails(e, IBV_WR_RDMA_WRITE, bad, to, rkey, ALL_RIGHTS, IBV_WC_LOC_PROT_ERR);
	PART("bytes beyond the region of an lkey");
	bad = at(&e[0], MEMORY - 8, 32);
	fails(e, IBV_WR_RDMA_WRITE, bad, to, rkey, ALL_RIGHTS, IBV_WC_LOC_PROT_ERR);
	PART("an lkey of another protection domain");
	struct ibv_pd *other = MADE(ibv_alloc_pd(e[0].context));
	struct ibv_mr *mr = MADE(ibv_reg_mr(other, e[0].memory, 4096, ALL_RIGHTS));
	bad = good;
	bad.lkey = mr->lkey;
	fails(e, IBV_WR_RDMA_WRITE, bad, to, rkey, ALL_RIGHTS, IBV_WC_LOC_PROT_ERR);
	OK(ibv_dereg_mr(mr));
	OK(ibv_dealloc_pd(other));
	PART("a READ into memory that may not be written");
	mr = MADE(ibv_reg_mr(e[0].pd, e[0].memory, 4096, 0));
	bad.lkey = mr->lkey;
	fails(e, IBV_WR_RDMA_READ, bad, to, rkey, ALL_RIGHTS, IBV_WC_LOC_PROT_ERR);
	OK(ibv_dereg_mr(mr));
	PART("a key that was good until its region went");
	mr = MADE(ibv_reg_mr(e[0].pd, e[0].memory, 4096, ALL_RIGHTS));
	bad.lkey = mr->lkey;
	OK(ibv_dereg_mr(mr));
	fails(e, IBV_WR_RDMA_WRITE, bad, to, rkey, ALL_RIGHTS, IBV_WC_LOC_PROT_ERR);

	PART("an rkey that is none: IBV_WC_REM_ACCESS_ERR");
	fails(e, IBV_WR_RDMA_WRITE, good, to, ~rkey, ALL_RIGHTS, IBV_WC_REM_ACCESS_ERR);
	fails(e, IBV_WR_RDMA_READ, good, to, ~rkey, ALL_RIGHTS, IBV_WC_REM_ACCESS_ERR);
	PART("bytes beyond the region of an rkey");
	fails(e, IBV_WR_RDMA_WRITE, good, to + MEMORY - 8, rkey, ALL_RIGHTS, IBV_WC_REM_ACCESS_ERR);
	fails(e, IBV_WR_RDMA_WRITE, good, to - 1, rkey, ALL_RIGHTS, IBV_WC_REM_ACCESS_ERR);
	fails(e, IBV_WR_RDMA_READ, good, UINT64_MAX - 8, rkey, ALL_RIGHTS, IBV_WC_REM_ACCESS_ERR);
	PART("an rkey without the right");
	mr = MADE(ibv_reg_mr(e[1].pd, e[1].memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
	fails(e, IBV_WR_RDMA_WRITE, good, to, mr->rkey, ALL_RIGHTS, IBV_WC_REM_ACCESS_ERR);
	OK(ibv_dereg_mr(mr));
	mr = MADE(ibv_reg_mr(e[1].pd, e[1].memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	fails(e, IBV_WR_RDMA_READ, good, to, mr->rkey, ALL_RIGHTS, IBV_WC_REM_ACCESS_ERR);
	OK(ibv_dereg_mr(mr));
	PART("an rkey of a region that is gone");
	fails(e, IBV_WR_RDMA_WRITE, good, to, mr->rkey, ALL_RIGHTS, IBV_WC_REM_ACCESS_ERR);
	PART("an rkey of another protection domain");
	other = MADE(ibv_alloc_pd(e[1].context));
	mr = MADE(ibv_reg_mr(other, e[1].memory, 4096, ALL_RIGHTS));
	fails(e, IBV_WR_RDMA_WRITE, good, to, mr->rkey, ALL_RIGHTS, IBV_WC_REM_ACCESS_ERR);
	OK(ibv_dereg_mr(mr));
	OK(ibv_dealloc_pd(other));
	PART("a queue pair without the right");
	fails(e, IBV_WR_RDMA_WRITE, good, to, rkey, IBV_ACCESS_REMOTE_READ, IBV_WC_REM_ACCESS_ERR);
	fails(e, IBV_WR_RDMA_READ, good, to, rkey, IBV_ACCESS_REMOTE_WRITE, IBV_WC_REM_ACCESS_ERR);
	close_both(e);
}

static void receives(void)
{
	struct end e[2];
	open_both(e);
	PART("a SEND that is longer than the receive: IBV_WC_LOC_LEN_ERR there, IBV_WC_REM_INV_REQ_ERR here");
	connect_new(e, IBV_QPT_RC);
	OK(post_recv(e[1].qp, 1, at(&e[1], 0, 100)));
	OK(post_recv(e[1].qp, 2, at(&e[1], 0, 100)));
	e[1].memory[100] = 0x55;
	OK(post_send(e[0].qp, 3, at(&e[0], 0, 101)));
	DONE(e[0].cq, 3, IBV_WC_REM_INV_REQ_ERR);
	DONE(e[1].cq, 1, IBV_WC_LOC_LEN_ERR);
	DONE(e[1].cq, 2, IBV_WC_WR_FLUSH_ERR);
	EQ(e[1].memory[100], 0x55);
	destroy_qps(e);

	PART("a receive with an lkey that is none: IBV_WC_LOC_PROT_ERR there, IBV_WC_REM_OP_ERR here");
	connect_new(e, IBV_QPT_RC);
	struct ibv_sge bad = at(&e[1], 0, 100);
	bad.lkey = ~bad.lkey;
	OK(post_recv(e[1].qp, 1, bad));
	OK(post_send(e[0].qp, 3, at(&e[0], 0, 100)));
	DONE(e[0].cq, 3, IBV_WC_REM_OP_ERR);
	DONE(e[1].cq, 1, IBV_WC_LOC_PROT_ERR);
	destroy_qps(e);

	PART("no receive, and no patience: IBV_WC_RNR_RETRY_EXC_ERR");
	for (int i = 0; i < 2; i++)
		e[i].qp = make_qp(&e[i], IBV_QPT_RC);
	connect_with(e, ALL_RIGHTS, (struct patience){14, 7, 0});
	OK(post_send(e[0].qp, 1, at(&e[0], 0, 8)));
	DONE(e[0].cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	destroy_qps(e);

	PART("nobody there: IBV_WC_RETRY_EXC_ERR");
	for (int i = 0; i < 2; i++)
		e[i].qp = make_qp(&e[i], IBV_QPT_RC);
	connect_with(e, ALL_RIGHTS, (struct patience){8, 2, 7});
	OK(ibv_destroy_qp(e[1].qp));
	OK(post_send(e[0].qp, 1, at(&e[0], 0, 8)));
	OK(post_send(e[0].qp, 2, at(&e[0], 0, 8)));
	DONE(e[0].cq, 1, IBV_WC_RETRY_EXC_ERR);
	DONE(e[0].cq, 2, IBV_WC_WR_FLUSH_ERR);
	OK(ibv_destroy_qp(e[0].qp));

	PART("all receives are flushed, in their order");
	e[0].qp = make_qp(&e[0], IBV_QPT_RC);
	OK(to_init(e[0].qp, ALL_RIGHTS));
	for (int i = 0; i < 20; i++)
		OK(post_recv(e[0].qp, i, at(&e[0], 0, 8)));
	OK(to_state(e[0].qp, IBV_QPS_ERR));
	for (int i = 0; i < 20; i++)
		DONE(e[0].cq, i, IBV_WC_WR_FLUSH_ERR);
	NOTHING(e[0].cq, 20);
	OK(ibv_destroy_qp(e[0].qp));
	close_both(e);
}

static void names(void)
{
	PART("names of what went wrong");
	CHECK(strstr(ibv_wc_status_str(IBV_WC_SUCCESS), "success"));
	CHECK(ibv_wc_status_str(999) && ibv_event_type_str(999) && ibv_port_state_str(99) && ibv_node_type_str(99));
	CHECK(strlen(ibv_event_type_str(IBV_EVENT_COMM_EST)) > 3);
}

int main(void)
{
	names();
	queries();
	in_use();
	too_large();
	regions();
	wrong_state();
	bad_work();
	told_again();
	full();
	modify();
	keys();
	receives();
	return 0;
}
