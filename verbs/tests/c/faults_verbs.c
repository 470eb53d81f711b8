// Faults of verbs, as a program sees them: calls that fail or take long, completions with another status, late, in another order or lost,
// asynchronous events with what follows, the process stopped and killed.
// run: --dev mem
// seconds: 120

#include "faults.h"

static struct end e[2];

static void ready(void)
{
	open_both(e);
	connect_new(e, IBV_QPT_RC);
}

// An event that must come, about this object or about none.
static void async(struct ibv_context *context, enum ibv_event_type kind, const void *object)
{
	struct ibv_async_event event;
	OK(ibv_get_async_event(context, &event));
	EQ(event.event_type, kind);
	if (object)
		CHECK((const void *)event.element.qp == object);
	ibv_ack_async_event(&event);
}

static void registration(void)
{
	open_both(e);
	// Two were made by now.
	static char memory[4096];
	for (int i = 0; i < 4; i++) {
		errno = 0;
		struct ibv_mr *mr = ibv_reg_mr(e[0].pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
		if (i == 1)
			CHECK(!mr && errno == ENOMEM);
		else
			CHECK(mr && ibv_dereg_mr(mr) == 0);
	}
	close_both(e);
}

static void slow(void)
{
	static char memory[4096];
	struct timespec before, after;
	int count;
	struct ibv_device **list = MADE(ibv_get_device_list(&count));
	struct ibv_context *context = MADE(ibv_open_device(list[0]));
	struct ibv_pd *pd = MADE(ibv_alloc_pd(context));
	clock_gettime(CLOCK_MONOTONIC, &before);
	struct ibv_mr *mr = MADE(ibv_reg_mr(pd, memory, sizeof(memory), 0));
	clock_gettime(CLOCK_MONOTONIC, &after);
	CHECK((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 >= 100);
	OK(ibv_dereg_mr(mr));
}

static void errnos(void)
{
	open_both(e);
	struct ibv_qp_init_attr init = qp_options(&e[0], IBV_QPT_RC);
	errno = 0;
	CHECK(!ibv_create_qp(e[0].pd, &init) && errno == ENOSPC);
	connect_new(e, IBV_QPT_RC);
	struct ibv_wc wc;
	EQ(ibv_req_notify_cq(e[0].cq, 0), EIO);
	OK(ibv_req_notify_cq(e[0].cq, 0));
	CHECK(ibv_poll_cq(e[0].cq, 1, &wc) < 0);
	EQ(ibv_poll_cq(e[0].cq, 1, &wc), 0);
	union ibv_gid gid;
	errno = 0;
	EQ(ibv_query_gid(e[0].context, 1, 0, &gid), 0);
	EQ(ibv_destroy_qp(e[0].qp), EBUSY);
	destroy_qps(e);
	close_both(e);
}

static void one_of_a_list(void)
{
	ready();
	struct ibv_sge sge = at(&e[0], 0, 8);
	struct ibv_send_wr list[3], *bad = NULL;
	for (int i = 0; i < 3; i++) {
		OK(post_recv(e[1].qp, 10 + i, at(&e[1], 64 * i, 64)));
		list[i] = work(IBV_WR_SEND, 1 + i, &sge);
		list[i].next = i < 2 ? &list[i + 1] : NULL;
	}
	EQ(ibv_post_send(e[0].qp, list, &bad), ENOMEM);
	CHECK(bad == &list[1] && list[0].next == &list[1]);
	DONE(e[0].cq, 1, IBV_WC_SUCCESS);
	NOTHING(e[0].cq, 20);
	list[1].wr_id = 22;
	OK(ibv_post_send(e[0].qp, &list[1], &bad));
	DONE(e[0].cq, 22, IBV_WC_SUCCESS);
	DONE(e[0].cq, 3, IBV_WC_SUCCESS);
}

static void second_queue_pair(void)
{
	open_both(e);
	struct ibv_qp *first[2];
	connect_new(e, IBV_QPT_RC);
	first[0] = e[0].qp, first[1] = e[1].qp;
	connect_new(e, IBV_QPT_RC);
	OK(post_recv(first[1], 1, at(&e[1], 0, 64)));
	OK(post_recv(e[1].qp, 2, at(&e[1], 64, 64)));
	OK(post_send(first[0], 3, at(&e[0], 0, 8)));
	DONE(e[0].cq, 3, IBV_WC_SUCCESS);
	// Queue pairs are made in turn at both ends, so the third is the second of the first end.
	EQ(post_send(e[0].qp, 4, at(&e[0], 0, 8)), EIO);
	OK(post_send(e[0].qp, 5, at(&e[0], 0, 8)));
	DONE(e[0].cq, 5, IBV_WC_SUCCESS);
}

static void failed_completion(void)
{
	ready();
	for (int i = 0; i < 4; i++)
		OK(post_recv(e[1].qp, 10 + i, at(&e[1], 64 * i, 64)));
	for (int i = 0; i < 3; i++)
		OK(post_send(e[0].qp, 1 + i, at(&e[0], 0, 8)));
	DONE(e[0].cq, 1, IBV_WC_SUCCESS);
	struct ibv_wc wc = DONE(e[0].cq, 2, IBV_WC_RETRY_EXC_ERR);
	EQ(wc.vendor_err, 0x81);
	EQ(wc.qp_num, e[0].qp->qp_num);
	EQ(state_of(e[0].qp), IBV_QPS_ERR);
	DONE(e[0].cq, 3, IBV_WC_WR_FLUSH_ERR);
	OK(post_send(e[0].qp, 4, at(&e[0], 0, 8)));
	DONE(e[0].cq, 4, IBV_WC_WR_FLUSH_ERR);
	// It begins anew, and so does the other end.
	for (int i = 0; i < 2; i++)
		OK(to_state(e[i].qp, IBV_QPS_RESET));
	struct ibv_wc left;
	while (ibv_poll_cq(e[1].cq, 1, &left) > 0)
		;
	connect_with(e, ALL_RIGHTS, USUAL);
	OK(post_recv(e[1].qp, 20, at(&e[1], 0, 64)));
	OK(post_send(e[0].qp, 5, at(&e[0], 0, 8)));
	DONE(e[0].cq, 5, IBV_WC_SUCCESS);
	DONE(e[1].cq, 20, IBV_WC_SUCCESS);
}

static void failed_receive(void)
{
	ready();
	OK(post_recv(e[1].qp, 10, at(&e[1], 0, 64)));
	OK(post_recv(e[1].qp, 11, at(&e[1], 64, 64)));
	OK(post_send(e[0].qp, 1, at(&e[0], 0, 8)));
	DONE(e[1].cq, 10, IBV_WC_LOC_PROT_ERR);
	EQ(state_of(e[1].qp), IBV_QPS_ERR);
	DONE(e[1].cq, 11, IBV_WC_WR_FLUSH_ERR);
}

static void failed_datagram(void)
{
	open_both(e);
	connect_new(e, IBV_QPT_UD);
	struct ibv_ah_attr path = path_to(&e[0], &e[1]);
	struct ibv_ah *ah = MADE(ibv_create_ah(e[0].pd, &path));
	struct ibv_sge sge = at(&e[0], 0, 8);
	OK(post_recv(e[0].qp, 10, at(&e[0], 4096, 128)));
	for (int i = 0; i < 2; i++) {
		struct ibv_send_wr wr = work(IBV_WR_SEND, 1 + i, &sge);
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = e[1].qp->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
		OK(post(e[0].qp, &wr));
	}
	DONE(e[0].cq, 1, IBV_WC_LOC_QP_OP_ERR);
	EQ(state_of(e[0].qp), IBV_QPS_SQE);
	DONE(e[0].cq, 2, IBV_WC_WR_FLUSH_ERR);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE};
	OK(ibv_modify_qp(e[0].qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE));
	struct ibv_send_wr wr = work(IBV_WR_SEND, 3, &sge);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = e[1].qp->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	OK(post(e[0].qp, &wr));
	DONE(e[0].cq, 3, IBV_WC_SUCCESS);
}

static void late_wakes(void)
{
	ready();
	struct ibv_cq *cq;
	void *context;
	OK(post_recv(e[1].qp, 10, at(&e[1], 0, 64)));
	OK(ibv_req_notify_cq(e[1].cq, 0));
	OK(post_send(e[0].qp, 1, at(&e[0], 0, 8)));
	struct ibv_wc wc;
	int found = 0;
	// As programs do: wait, acknowledge, arm, poll until there is nothing.
	while (!found) {
		OK(ibv_get_cq_event(e[1].channel, &cq, &context));
		ibv_ack_cq_events(cq, 1);
		OK(ibv_req_notify_cq(cq, 0));
		int n;
		while ((n = ibv_poll_cq(cq, 1, &wc)) > 0)
			found++;
		EQ(n, 0);
	}
	EQ(found, 1);
	EQ(wc.wr_id, 10);
	EQ(wc.status, IBV_WC_SUCCESS);
}

static void some_polls(void)
{
	ready();
	OK(post_recv(e[1].qp, 10, at(&e[1], 0, 64)));
	OK(post_send(e[0].qp, 1, at(&e[0], 0, 8)));
	DONE(e[1].cq, 10, IBV_WC_SUCCESS);
	DONE(e[0].cq, 1, IBV_WC_SUCCESS);
}

static void other_order(void)
{
	open_both(e);
	struct ibv_qp *first[2];
	connect_new(e, IBV_QPT_RC);
	first[0] = e[0].qp, first[1] = e[1].qp;
	connect_new(e, IBV_QPT_RC);
	OK(post_recv(first[1], 1, at(&e[1], 0, 64)));
	OK(post_recv(first[1], 2, at(&e[1], 0, 64)));
	OK(post_recv(e[1].qp, 3, at(&e[1], 64, 64)));
	OK(post_send(first[0], 11, at(&e[0], 0, 8)));
	OK(post_send(first[0], 12, at(&e[0], 0, 8)));
	DONE(e[0].cq, 11, IBV_WC_SUCCESS);
	DONE(e[0].cq, 12, IBV_WC_SUCCESS);
	OK(post_send(e[0].qp, 13, at(&e[0], 0, 8)));
	DONE(e[0].cq, 13, IBV_WC_SUCCESS);
	// All three are there: the first of the receives is passed by the other queue pair's, and holds the one behind it.
	DONE(e[1].cq, 3, IBV_WC_SUCCESS);
	DONE(e[1].cq, 1, IBV_WC_SUCCESS);
	DONE(e[1].cq, 2, IBV_WC_SUCCESS);
}

static void overrun(void)
{
	ready();
	for (int i = 0; i < 2; i++)
		OK(post_recv(e[1].qp, 10 + i, at(&e[1], 64 * i, 64)));
	OK(post_send(e[0].qp, 1, at(&e[0], 0, 8)));
	DONE(e[0].cq, 1, IBV_WC_SUCCESS);
	OK(post_send(e[0].qp, 2, at(&e[0], 0, 8)));
	struct ibv_wc wc;
	uint64_t end = now_ms() + LIMIT_MS;
	int n;
	while ((n = ibv_poll_cq(e[0].cq, 1, &wc)) == 0 && now_ms() < end)
		;
	CHECK(n < 0);
	EQ(state_of(e[0].qp), IBV_QPS_ERR);
	async(e[0].context, IBV_EVENT_CQ_ERR, e[0].cq);
	async(e[0].context, IBV_EVENT_QP_FATAL, e[0].qp);
	CHECK(ibv_poll_cq(e[0].cq, 1, &wc) < 0);
}

// A queue pair whose receives, so many, are flushed to `cq`.
static struct ibv_qp *flushed(struct ibv_cq *cq, int receives)
{
	struct ibv_qp_init_attr init = qp_options(&e[1], IBV_QPT_RC);
	init.cap.max_recv_wr = receives;
	init.recv_cq = cq;
	struct ibv_qp *qp = MADE(ibv_create_qp(e[1].pd, &init));
	OK(to_init(qp, ALL_RIGHTS));
	for (int i = 0; i < receives; i++)
		OK(post_recv(qp, i, at(&e[1], 0, 8)));
	OK(to_state(qp, IBV_QPS_ERR));
	return qp;
}

static void overruns_as_ever(void)
{
	open_both(e);
	// Where nothing is done to completions none is taken before it is polled for, so one of them makes room for one.
	struct ibv_cq *small = MADE(ibv_create_cq(e[1].context, 16, NULL, NULL, 0));
	struct ibv_qp *first = flushed(small, small->cqe / 2);
	DONE(small, 0, IBV_WC_WR_FLUSH_ERR);
	struct ibv_qp *second = flushed(small, small->cqe - small->cqe / 2 + 11);
	async(e[1].context, IBV_EVENT_CQ_ERR, small);
	OK(ibv_destroy_qp(first));
	OK(ibv_destroy_qp(second));
	OK(ibv_destroy_cq(small));
	close_both(e);
}

static void extended(void)
{
	open_both(e);
	struct ibv_cq_init_attr_ex attr = {.cqe = 16};
	struct ibv_cq_ex *cq = MADE(ibv_create_cq_ex(e[0].context, &attr));
	struct ibv_cq *plain = e[0].cq;
	e[0].cq = ibv_cq_ex_to_cq(cq);
	connect_new(e, IBV_QPT_RC);
	e[0].cq = plain;
	OK(post_recv(e[1].qp, 10, at(&e[1], 0, 64)));
	OK(post_send(e[0].qp, 7, at(&e[0], 0, 8)));
	struct ibv_poll_cq_attr none = {0};
	int result;
	uint64_t end = now_ms() + LIMIT_MS;
	while ((result = ibv_start_poll(cq, &none)) == ENOENT && now_ms() < end)
		;
	EQ(result, 0);
	EQ(cq->wr_id, 7);
	EQ(cq->status, IBV_WC_REM_ACCESS_ERR);
	EQ(ibv_wc_read_vendor_err(cq), 0x88);
	ibv_end_poll(cq);
	EQ(state_of(e[0].qp), IBV_QPS_ERR);
}

static void port_fails(void)
{
	ready();
	struct ibv_port_attr port;
	OK(post_recv(e[1].qp, 10, at(&e[1], 0, 64)));
	OK(post_send(e[0].qp, 1, at(&e[0], 0, 8)));
	async(e[0].context, IBV_EVENT_PORT_ERR, NULL);
	// It may be up again by now; that it is comes behind.
	async(e[0].context, IBV_EVENT_PORT_ACTIVE, NULL);
	OK(ibv_query_port(e[0].context, 1, &port));
	EQ(port.state, IBV_PORT_ACTIVE);
	DONE(e[0].cq, 1, IBV_WC_SUCCESS);
	DONE(e[1].cq, 10, IBV_WC_SUCCESS);
}

static void port_stays_down(void)
{
	ready();
	struct ibv_port_attr port;
	OK(post_recv(e[1].qp, 10, at(&e[1], 0, 64)));
	OK(post_send(e[0].qp, 1, at(&e[0], 0, 8)));
	async(e[0].context, IBV_EVENT_PORT_ERR, NULL);
	OK(ibv_query_port(e[0].context, 1, &port));
	EQ(port.state, IBV_PORT_DOWN);
	// What leaves is lost, as hardware loses it, and retries are counted.
	DONE(e[0].cq, 1, IBV_WC_RETRY_EXC_ERR);
	NOTHING(e[1].cq, 50);
}

static void events(void)
{
	open_both(e);
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 16, .max_sge = 1}};
	e[1].srq = MADE(ibv_create_srq(e[1].pd, &init));
	connect_new(e, IBV_QPT_RC);
	OK(post_send(e[0].qp, 1, at(&e[0], 0, 8)));
	async(e[0].context, IBV_EVENT_GID_CHANGE, NULL);
	async(e[0].context, IBV_EVENT_LID_CHANGE, NULL);
	async(e[1].context, IBV_EVENT_GID_CHANGE, NULL);
	async(e[1].context, IBV_EVENT_LID_CHANGE, NULL);
	async(e[1].context, IBV_EVENT_SRQ_LIMIT_REACHED, e[1].srq);
	async(e[0].context, IBV_EVENT_QP_FATAL, e[0].qp);
	EQ(state_of(e[0].qp), IBV_QPS_ERR);
	EQ(state_of(e[1].qp), IBV_QPS_RTS);
}

static void timed(void)
{
	open_both(e);
	async(e[0].context, IBV_EVENT_GID_CHANGE, NULL);
	async(e[1].context, IBV_EVENT_GID_CHANGE, NULL);
}

static void device_fails(void)
{
	ready();
	OK(post_recv(e[0].qp, 5, at(&e[0], 0, 64)));
	EQ(post_send(e[0].qp, 1, at(&e[0], 0, 8)), EIO);
	async(e[0].context, IBV_EVENT_DEVICE_FATAL, NULL);
	async(e[1].context, IBV_EVENT_DEVICE_FATAL, NULL);
	DONE(e[0].cq, 5, IBV_WC_WR_FLUSH_ERR);
	errno = 0;
	CHECK(!ibv_alloc_pd(e[0].context) && errno == EIO);
	destroy_qps(e);
	close_both(e);
}

static void posts_a_send(void)
{
	ready();
	OK(post_send(e[0].qp, 1, at(&e[0], 0, 8)));
	FAIL("it is alive");
}

static void stopped(void)
{
	ready();
	struct timespec before, after;
	OK(post_recv(e[1].qp, 10, at(&e[1], 0, 64)));
	clock_gettime(CLOCK_MONOTONIC, &before);
	OK(post_send(e[0].qp, 1, at(&e[0], 0, 8)));
	clock_gettime(CLOCK_MONOTONIC, &after);
	CHECK((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 >= 100);
	DONE(e[0].cq, 1, IBV_WC_SUCCESS);
	// Nobody is left to be waited for.
	CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

static void interrupted(int signal)
{
	(void)signal;
}

static void stopped_often(void)
{
	struct sigaction handler = {.sa_handler = interrupted};
	OK(sigaction(SIGCONT, &handler, NULL));
	ready();
	struct ibv_wc wc;
	for (int i = 0; i < 200; i++)
		EQ(ibv_poll_cq(e[0].cq, 1, &wc), 0);
	CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

static void nothing(void)
{
	open_both(e);
	close_both(e);
}

// What a part says on stderr, in one line.
static void says(const char *faults, void (*part)(void), const char *line)
{
	int ends[2], old = dup(2);
	char said[1024] = {0};
	CHECK(old >= 0 && pipe(ends) == 0 && dup2(ends[1], 2) == 2);
	close(ends[1]);
	int status = with_faults(faults, part);
	CHECK(dup2(old, 2) == 2);
	close(old);
	ssize_t n = read(ends[0], said, sizeof(said) - 1);
	close(ends[0]);
	EQ(status, 0);
	if (n < 0 || strcmp(said, line))
		FAIL("it says \"%s\", not \"%s\"", said, line);
}

int main(void)
{
	PART("a call fails with an errno");
	WITH("verbs.reg_mr#4=ENOMEM", registration);
	WITH("verbs.create_qp#1=ENOSPC,verbs.req_notify_cq#1=EIO,verbs.poll_cq#1=EIO,verbs.destroy_qp#1=EBUSY", errnos);
	PART("a call takes long");
	WITH("verbs.reg_mr=100ms", slow);
	PART("one work request of a list fails");
	SCRIPT("[[call]]\nverb = \"post_send\"\naction = \"fail\"\nerrno = \"ENOMEM\"\nwr_id = 2\n", one_of_a_list);
	PART("a call of one queue pair fails");
	SCRIPT("[[call]]\nverb = \"post_send\"\naction = \"fail\"\nerrno = \"EIO\"\nqp = \"#3\"\nnth = 1\n", second_queue_pair);
	PART("a completion has another status, and its queue pair the state that follows");
	SCRIPT("[[completion]]\naction = \"status\"\nstatus = \"RETRY_EXC_ERR\"\nvendor_err = 0x81\nwr_id = 2\n", failed_completion);
	SCRIPT("[[completion]]\naction = \"status\"\nstatus = \"LOC_PROT_ERR\"\nqueue = \"recv\"\nwr_id = 10\n", failed_receive);
	SCRIPT("[[completion]]\naction = \"status\"\nstatus = \"LOC_QP_OP_ERR\"\nwr_id = 1\n", failed_datagram);
	SCRIPT("[[completion]]\naction = \"status\"\nstatus = \"REM_ACCESS_ERR\"\nvendor_err = 0x88\nwr_id = 7\n", extended);
	PART("completions come late, and who sleeps is woken");
	WITH("verbs.poll_cq=late:60ms", late_wakes);
	WITH("verbs.poll_cq=polls:1000", late_wakes);
	WITH("verbs.poll_cq=polls:7", some_polls);
	PART("completions of different queues come in another order");
	SCRIPT("[[completion]]\naction = \"reorder\"\nbehind = 1\nwr_id = 1\n", other_order);
	PART("a completion queue overruns");
	WITH("verbs.poll_cq#2=overrun", overrun);
	WITH("verbs.reg_mr=1us", overruns_as_ever);
	PART("asynchronous events, with what follows");
	WITH("event.PORT_ERR=post_send#1+100ms", port_fails);
	WITH("event.PORT_ERR=post_send#1", port_stays_down);
	WITH("event.GID_CHANGE=post_send#1,event.LID_CHANGE=post_send#1,event.SRQ_LIMIT_REACHED=post_send#1,event.QP_FATAL#1=post_send#1",
	     events);
	WITH("event.GID_CHANGE=200ms", timed);
	WITH("event.DEVICE_FATAL=post_send#1", device_fails);
	PART("the process is killed, and stopped");
	int status = with_faults("verbs.post_send#1=kill", posts_a_send);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	WITH("verbs.post_send#1=stop:100ms", stopped);
	PART("however short it is stopped, it goes on, and nobody is left to be waited for");
	WITH("verbs.poll_cq=stop:1ns", stopped_often);
	PART("what was for no call is named at the end");
	says("verbs.reg_mr#99=ENOMEM,verbs.post_send=EIO:1e-9", nothing,
	     "softnic: verbs.reg_mr#99=ENOMEM was for no call of this run\nsoftnic: verbs.post_send=EIO:1e-9 was for no call of this run\n");
	says("verbs.reg_mr=0ms", nothing, "");
	says("event.QP_FATAL#9=create_cq#1,event.GID_CHANGE=create_cq#1", nothing, "softnic: event.QP_FATAL#9=create_cq#1 was for no moment of this run\n");
	return 0;
}
