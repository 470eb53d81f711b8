// Datagrams: address handles, the 40 bytes before the data, Q_Keys, answers by a completion, lengths, and multicast.

#include "common.h"

#define GRH 40

static struct ibv_ah *ah_to(const struct end *from, const struct end *to)
{
	struct ibv_ah_attr path = path_to(from, to);
	return MADE(ibv_create_ah(from->pd, &path));
}

static struct ibv_send_wr datagram(struct ibv_sge *sge, uint64_t wr_id, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct ibv_send_wr wr = work(IBV_WR_SEND, wr_id, sge);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = qkey;
	return wr;
}

// For RoCEv2 over IPv4 the header is in the last 20 of the 40 bytes, and what is before them means nothing.
static void check_header(const struct end *from, const struct end *to, const uint8_t *at_)
{
	const uint8_t *ip = at_ + 20;
	EQ(ip[0], 0x45);
	CHECK(!memcmp(ip + 12, from->gid.raw + 12, 4));
	CHECK(!memcmp(ip + 16, to->gid.raw + 12, 4));
}

static void sends(struct end e[2])
{
	PART("data, and who sent it");
	struct ibv_ah *ah = ah_to(&e[0], &e[1]);
	static const uint32_t lengths[] = {0, 1, 3, 64, 1000, 1024};
	for (int i = 0; i < 6; i++) {
		uint32_t length = lengths[i];
		fill(e[0].memory, length, i);
		memset(e[1].memory, 0, 2048);
		OK(post_recv(e[1].qp, 10 + i, at(&e[1], 0, 2048)));
		struct ibv_sge sge = at(&e[0], 0, length);
		// Of the number the low 24 bits count.
		struct ibv_send_wr wr = datagram(&sge, i, ah, e[1].qp->qp_num | (uint32_t)i << 24, QKEY);
		if (i % 2) {
			wr.opcode = IBV_WR_SEND_WITH_IMM;
			wr.imm_data = htonl(0xabcd0000 + i);
		}
		OK(post(e[0].qp, &wr));
		EQ(DONE(e[0].cq, i, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
		struct ibv_wc wc = DONE(e[1].cq, 10 + i, IBV_WC_SUCCESS);
		EQ(wc.opcode, IBV_WC_RECV);
		EQ(wc.byte_len, GRH + length);
		EQ(wc.src_qp, e[0].qp->qp_num);
		CHECK(wc.wc_flags & IBV_WC_GRH);
		// What kind of packet it came in, as ConnectX says it: IPv4 and UDP.
		EQ(wc.sl, 0xa);
		EQ(!!(wc.wc_flags & IBV_WC_WITH_IMM), i % 2);
		if (i % 2)
			EQ(ntohl(wc.imm_data), 0xabcd0000 + i);
		check_header(&e[0], &e[1], e[1].memory);
		CHECK(same(e[1].memory + GRH, length, i));
	}
	PART("an answer by what came in");
	OK(post_recv(e[1].qp, 1, at(&e[1], 0, 2048)));
	struct ibv_sge sge = at(&e[0], 0, 8);
	struct ibv_send_wr wr = datagram(&sge, 2, ah, e[1].qp->qp_num, QKEY);
	OK(post(e[0].qp, &wr));
	DONE(e[0].cq, 2, IBV_WC_SUCCESS);
	struct ibv_wc wc = DONE(e[1].cq, 1, IBV_WC_SUCCESS);
	struct ibv_ah *back = MADE(ibv_create_ah_from_wc(e[1].pd, &wc, (struct ibv_grh *)e[1].memory, 1));
	OK(post_recv(e[0].qp, 3, at(&e[0], 4096, 2048)));
	struct ibv_sge answer = at(&e[1], 8192, 16);
	fill(e[1].memory + 8192, 16, 99);
	wr = datagram(&answer, 4, back, wc.src_qp, QKEY);
	OK(post(e[1].qp, &wr));
	DONE(e[1].cq, 4, IBV_WC_SUCCESS);
	DONE(e[0].cq, 3, IBV_WC_SUCCESS);
	CHECK(same(e[0].memory + 4096 + GRH, 16, 99));
	OK(ibv_destroy_ah(back));
	OK(ibv_destroy_ah(ah));
}

static void dropped(struct end e[2])
{
	struct ibv_ah *ah = ah_to(&e[0], &e[1]);
	PART("another Q_Key, another queue pair, no receive: it is dropped, and the sender does not hear of it");
	OK(post_recv(e[1].qp, 1, at(&e[1], 0, 2048)));
	struct ibv_sge sge = at(&e[0], 0, 8);
	struct ibv_send_wr wr = datagram(&sge, 2, ah, e[1].qp->qp_num, QKEY + 1);
	OK(post(e[0].qp, &wr));
	DONE(e[0].cq, 2, IBV_WC_SUCCESS);
	wr.wr.ud.remote_qkey = QKEY;
	wr.wr.ud.remote_qpn = 0xfffffe;
	OK(post(e[0].qp, &wr));
	DONE(e[0].cq, 2, IBV_WC_SUCCESS);
	NOTHING(e[1].cq, 30);
	// Of the number of a queue pair the low 24 bits count.
	wr.wr.ud.remote_qpn = e[1].qp->qp_num | 0xab000000;
	for (int i = 0; i < 2; i++) {
		OK(post(e[0].qp, &wr));
		DONE(e[0].cq, 2, IBV_WC_SUCCESS);
	}
	DONE(e[1].cq, 1, IBV_WC_SUCCESS);
	NOTHING(e[1].cq, 30);
	PART("a Q_Key with the highest bit stands for the queue pair's own");
	OK(post_recv(e[1].qp, 1, at(&e[1], 0, 2048)));
	wr.wr.ud.remote_qkey = 0x80000000;
	OK(post(e[0].qp, &wr));
	DONE(e[0].cq, 2, IBV_WC_SUCCESS);
	DONE(e[1].cq, 1, IBV_WC_SUCCESS);
	OK(ibv_destroy_ah(ah));
}

static void lengths(struct end e[2])
{
	PART("longer than the port's MTU: refused, or a local length error");
	struct ibv_port_attr port;
	OK(ibv_query_port(e[0].context, 1, &port));
	uint32_t mtu = 128u << port.active_mtu;
	struct ibv_ah *ah = ah_to(&e[0], &e[1]);
	struct ibv_sge sge = at(&e[0], 0, mtu + 1);
	struct ibv_send_wr wr = datagram(&sge, 1, ah, e[1].qp->qp_num, QKEY);
	if (post(e[0].qp, &wr) == 0)
		DONE(e[0].cq, 1, IBV_WC_LOC_LEN_ERR);
	OK(ibv_destroy_qp(e[0].qp));
	e[0].qp = make_qp(&e[0], IBV_QPT_UD);
	OK(to_init(e[0].qp, 0));
	OK(to_rtr(e[0].qp, &e[0], &e[1], 0));
	OK(to_rts(e[0].qp, USUAL));
	PART("as long as it may be");
	OK(post_recv(e[1].qp, 2, at(&e[1], 0, 8192)));
	sge = at(&e[0], 0, mtu);
	fill(e[0].memory, mtu, 8);
	wr = datagram(&sge, 3, ah, e[1].qp->qp_num, QKEY);
	OK(post(e[0].qp, &wr));
	DONE(e[0].cq, 3, IBV_WC_SUCCESS);
	EQ(DONE(e[1].cq, 2, IBV_WC_SUCCESS).byte_len, mtu + GRH);
	CHECK(same(e[1].memory + GRH, mtu, 8));
	OK(ibv_destroy_ah(ah));
}

static void handles(struct end *e)
{
	PART("address handles that cannot be");
	struct ibv_ah_attr path = path_to(e, e);
	path.grh.sgid_index = 200;
	CHECK(!ibv_create_ah(e->pd, &path));
	path = path_to(e, e);
	path.port_num = 9;
	CHECK(!ibv_create_ah(e->pd, &path));
	path = path_to(e, e);
	path.is_global = 0;
	CHECK(!ibv_create_ah(e->pd, &path));
	PART("only SEND is for datagrams");
	struct ibv_ah *ah = ah_to(e, e);
	struct ibv_sge sge = at(e, 0, 8);
	struct ibv_send_wr wr = work(IBV_WR_RDMA_WRITE, 1, &sge);
	CHECK(post(e->qp, &wr) != 0);
	OK(ibv_destroy_ah(ah));
}

static void multicast(struct end e[2])
{
	PART("multicast");
	union ibv_gid group = {.raw = {[10] = 0xff, [11] = 0xff, 239, 1, 2, 3}};
	int refused = ibv_attach_mcast(e[1].qp, &group, 0);
	if (refused == EOPNOTSUPP || refused == ENOSYS) {
		PART("there is none");
		return;
	}
	OK(refused);
	struct end to = {.gid = group};
	struct ibv_ah *ah = ah_to(&e[0], &to);
	OK(post_recv(e[1].qp, 1, at(&e[1], 0, 2048)));
	fill(e[0].memory, 100, 5);
	struct ibv_sge sge = at(&e[0], 0, 100);
	struct ibv_send_wr wr = datagram(&sge, 2, ah, 0xffffff, QKEY);
	OK(post(e[0].qp, &wr));
	DONE(e[0].cq, 2, IBV_WC_SUCCESS);
	EQ(DONE(e[1].cq, 1, IBV_WC_SUCCESS).byte_len, 100 + GRH);
	CHECK(same(e[1].memory + GRH, 100, 5));
	PART("attached it is not destroyed: EBUSY; and detached it hears nothing");
	EQ(ibv_destroy_qp(e[1].qp), EBUSY);
	OK(ibv_detach_mcast(e[1].qp, &group, 0));
	CHECK(ibv_detach_mcast(e[1].qp, &group, 0) != 0);
	OK(post_recv(e[1].qp, 1, at(&e[1], 0, 2048)));
	OK(post(e[0].qp, &wr));
	DONE(e[0].cq, 2, IBV_WC_SUCCESS);
	NOTHING(e[1].cq, 30);
	OK(ibv_destroy_ah(ah));
}

int main(void)
{
	struct end e[2];
	open_both(e);
	connect_new(e, IBV_QPT_UD);
	sends(e);
	dropped(e);
	lengths(e);
	handles(&e[0]);
	multicast(e);
	destroy_qps(e);
	close_both(e);
	return 0;
}
