/* What is inline in DPDK's headers, or would need its structures in Rust: one call a burst, one small structure across. */
#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <rte_alarm.h>
#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include "descriptors.h"

struct frame {
    struct rte_mbuf *mbuf;
    uint8_t *data;
    uint32_t len, room;
};

struct port_info {
    char driver[32];
    uint8_t mac[6];
    uint16_t max_queues, mtu, max_mtu;
    uint32_t speed;
    uint8_t is_pci;
};

struct port_setup {
    uint16_t queues, rx_slots, tx_slots;
    uint16_t mtu; /* 0: as it is */
    uint8_t interrupts;
};

/* The first complaint of DPDK's since it was asked for something: it says more than its error numbers. What has no level is not of its log:
 * getopt's word on the command line. */
static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;
static char said[256];
static int is_verbose;

static ssize_t take_log(void *cookie, const char *text, size_t len)
{
    (void)cookie;
    size_t end = len;
    while (end > 0 && text[end - 1] == '\n')
        end--;
    if (end > 0 && rte_log_cur_msg_loglevel() <= (int)RTE_LOG_ERR && !said[0]) {
        size_t kept = end < sizeof said ? end : sizeof said - 1;
        pthread_mutex_lock(&said_lock);
        memcpy(said, text, kept);
        said[kept] = 0;
        pthread_mutex_unlock(&said_lock);
    }
    if (is_verbose)
        (void)!write(STDERR_FILENO, text, len);
    return len;
}

static void forget_said(void)
{
    pthread_mutex_lock(&said_lock);
    said[0] = 0;
    pthread_mutex_unlock(&said_lock);
}

void softnic_dpdk_said(char *out, size_t len)
{
    pthread_mutex_lock(&said_lock);
    snprintf(out, len, "%s", said);
    said[0] = 0;
    pthread_mutex_unlock(&said_lock);
}

/* Whoever is inside of a driver's burst, by port and queue, and ports that nobody may enter. A memif driver unmaps its rings in a thread of
 * DPDK's as soon as its peer is gone, and a poller that is inside of them dies: here the unmapping waits for it. Entering costs two
 * plain writes; the fence that they lack is made by whoever waits, which is seldom (membarrier(2)). */
#define QUEUES 64
struct poller {
    atomic_bool inside;
} __rte_cache_aligned;
static struct poller pollers[RTE_MAX_ETHPORTS][QUEUES];
static atomic_bool paused[RTE_MAX_ETHPORTS];

static inline bool enter(uint16_t port, uint16_t queue)
{
    atomic_store_explicit(&pollers[port][queue].inside, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (likely(!atomic_load_explicit(&paused[port], memory_order_acquire)))
        return true;
    atomic_store_explicit(&pollers[port][queue].inside, false, memory_order_release);
    return false;
}

static inline void leave(uint16_t port, uint16_t queue)
{
    atomic_store_explicit(&pollers[port][queue].inside, false, memory_order_release);
}

static void await_pollers(void)
{
    if (syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
        syscall(__NR_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
    for (unsigned port = 0; port < RTE_MAX_ETHPORTS; port++)
        for (unsigned queue = 0; queue < QUEUES; queue++)
            while (atomic_load_explicit(&pollers[port][queue].inside, memory_order_acquire))
                sched_yield();
}

/* The linker puts it before the driver's own (--wrap). Its flag says already that it is not connected, so nobody begins. */
struct rte_eth_dev;
extern void __real_memif_free_regions(struct rte_eth_dev *dev) __attribute__((weak));
void __wrap_memif_free_regions(struct rte_eth_dev *dev)
{
    await_pollers();
    if (__real_memif_free_regions)
        __real_memif_free_regions(dev);
}

/* The driver for AF_XDP uses these two, which say a lot. */
extern void *libbpf_set_print(void *print) __attribute__((weak));
extern void *libxdp_set_print(void *print) __attribute__((weak));

int softnic_dpdk_start(int argc, char **argv, int verbose)
{
    syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    cookie_io_functions_t log = {.write = take_log};
    FILE *stream = fopencookie(NULL, "w", log);
    is_verbose = verbose;
    if (stream) {
        setvbuf(stream, NULL, _IOLBF, 0);
        rte_openlog_stream(stream);
    }
    if (!verbose && libbpf_set_print)
        libbpf_set_print(NULL);
    if (!verbose && libxdp_set_print)
        libxdp_set_print(NULL);
    /* EAL prints its usage, and says twice what is wrong, by these. */
    FILE *out = stdout, *err = stderr;
    if (stream)
        stdout = stderr = stream;
    int failed = rte_eal_init(argc, argv) < 0 ? -rte_errno : 0;
    stdout = out;
    stderr = err;
    return failed;
}

int softnic_dpdk_enter_thread(void)
{
    if (rte_lcore_id() != LCORE_ID_ANY)
        return 0;
    return rte_thread_register() == 0;
}

void softnic_dpdk_leave_thread(void)
{
    rte_thread_unregister();
}

int softnic_dpdk_attach(const char *devargs, uint16_t *port)
{
    struct rte_dev_iterator iterator;
    uint16_t found;
    forget_said();
    int failed = rte_dev_probe(devargs);
    if (failed)
        return failed;
    RTE_ETH_FOREACH_MATCHING_DEV(found, devargs, &iterator) {
        *port = found;
        rte_eth_iterator_cleanup(&iterator);
        return 0;
    }
    return -ENODEV;
}

int softnic_dpdk_info(uint16_t port, struct port_info *out)
{
    struct rte_eth_dev_info info;
    struct rte_eth_link link;
    struct rte_ether_addr mac;
    int failed = rte_eth_dev_info_get(port, &info);
    if (failed)
        return failed;
    memset(out, 0, sizeof *out);
    snprintf(out->driver, sizeof out->driver, "%s", info.driver_name);
    if (rte_eth_macaddr_get(port, &mac) == 0)
        memcpy(out->mac, mac.addr_bytes, sizeof out->mac);
    out->max_queues = RTE_MIN(info.max_rx_queues, info.max_tx_queues);
    rte_eth_dev_get_mtu(port, &out->mtu);
    out->max_mtu = info.max_mtu;
    out->is_pci = strcmp(rte_bus_name(rte_dev_bus(info.device)), "pci") == 0;
    memset(&link, 0, sizeof link);
    rte_eth_link_get_nowait(port, &link);
    out->speed = link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 0 : link.link_speed;
    return 0;
}

int softnic_dpdk_is_up(uint16_t port)
{
    struct rte_eth_link link;
    memset(&link, 0, sizeof link);
    return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

struct rte_mempool *softnic_dpdk_pool(const char *name, unsigned count, uint16_t room)
{
    return rte_pktmbuf_pool_create(name, count, 256, 0, room + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
}

void softnic_dpdk_free_pool(struct rte_mempool *pool)
{
    rte_mempool_free(pool);
}

int softnic_dpdk_open(uint16_t port, const struct port_setup *setup, struct rte_mempool **pools)
{
    struct rte_eth_conf conf = {0};
    struct rte_eth_dev_info info;
    uint16_t rx_slots = setup->rx_slots, tx_slots = setup->tx_slots;
    forget_said();
    int failed = rte_eth_dev_info_get(port, &info);
    if (failed)
        return failed;
    if (setup->mtu)
        conf.rxmode.mtu = setup->mtu;
    conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
    conf.intr_conf.rxq = setup->interrupts;
    if (setup->queues > 1) {
        /* The peer's UDP source port tells connections apart. */
        conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads &
            (RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP);
    }
    failed = rte_eth_dev_configure(port, setup->queues, setup->queues, &conf);
    if (failed)
        return failed;
    if (setup->mtu && (failed = rte_eth_dev_set_mtu(port, setup->mtu)) && failed != -ENOTSUP)
        return failed;
    failed = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx_slots, &tx_slots);
    for (uint16_t queue = 0; !failed && queue < setup->queues; queue++) {
        failed = rte_eth_rx_queue_setup(port, queue, rx_slots, SOCKET_ID_ANY, NULL, pools[queue]);
        if (!failed)
            failed = rte_eth_tx_queue_setup(port, queue, tx_slots, SOCKET_ID_ANY, NULL);
    }
    return failed ? failed : rte_eth_dev_start(port);
}

/* Done by the thread of DPDK's that takes a driver's interrupts, where a driver changes its state there at any time. */
struct job {
    int (*what)(uint16_t port);
    uint16_t port;
    int result;
    sem_t done;
};

static void run_job(void *of)
{
    struct job *job = of;
    job->result = job->what(job->port);
    sem_post(&job->done);
}

static int in_interrupt_thread(int (*what)(uint16_t port), uint16_t port)
{
    struct job job = {.what = what, .port = port};
    sem_init(&job.done, 0, 0);
    int failed = rte_eal_alarm_set(1, run_job, &job);
    if (failed)
        return failed;
    while (sem_wait(&job.done))
        ;
    return job.result;
}

static int restart(uint16_t port)
{
    atomic_store(&paused[port], true);
    await_pollers();
    rte_eth_dev_stop(port);
    int failed = rte_eth_dev_start(port);
    atomic_store(&paused[port], failed != 0);
    return failed;
}

/* Begins anew: for a driver that does not find its peer again by itself. Nobody is inside meanwhile, and nobody enters until it went well. */
int softnic_dpdk_restart(uint16_t port)
{
    return in_interrupt_thread(restart, port);
}

static int close_port(uint16_t port)
{
    struct rte_eth_dev_info info;
    int failed = rte_eth_dev_info_get(port, &info);
    if (failed)
        return failed;
    rte_eth_dev_stop(port);
    rte_eth_dev_close(port);
    atomic_store(&paused[port], false);
    return rte_dev_remove(info.device);
}

int softnic_dpdk_close(uint16_t port, int by_interrupt_thread)
{
    return by_interrupt_thread ? in_interrupt_thread(close_port, port) : close_port(port);
}

/* A frame in several pieces becomes one: -1 where it is too long. */
static int join(struct rte_mempool *pool, struct frame *out, struct rte_mbuf *chain)
{
    struct rte_mbuf *whole = rte_pktmbuf_alloc(pool);
    if (!whole)
        return -1;
    if (chain->pkt_len > rte_pktmbuf_tailroom(whole)) {
        rte_pktmbuf_free(whole);
        return -1;
    }
    uint8_t *to = rte_pktmbuf_mtod(whole, uint8_t *);
    for (struct rte_mbuf *piece = chain; piece; piece = piece->next) {
        memcpy(to, rte_pktmbuf_mtod(piece, uint8_t *), piece->data_len);
        to += piece->data_len;
    }
    out->mbuf = whole;
    out->data = rte_pktmbuf_mtod(whole, uint8_t *);
    out->len = chain->pkt_len;
    return 0;
}

/* Says how many frames there are; `copied` and `lost` count up. */
uint16_t softnic_dpdk_receive(uint16_t port, uint16_t queue, struct rte_mempool *pool, struct frame *out, uint16_t limit,
                              uint64_t *copied, uint64_t *lost)
{
    struct rte_mbuf *mbufs[64];
    if (!enter(port, queue))
        return 0;
    uint16_t count = rte_eth_rx_burst(port, queue, mbufs, RTE_MIN(limit, 64)), kept = 0;
    leave(port, queue);
    for (uint16_t i = 0; i < count; i++) {
        struct rte_mbuf *mbuf = mbufs[i];
        if (likely(mbuf->nb_segs == 1)) {
            out[kept].mbuf = mbuf;
            out[kept].data = rte_pktmbuf_mtod(mbuf, uint8_t *);
            out[kept].len = mbuf->data_len;
            kept++;
            continue;
        }
        int failed = join(pool, &out[kept], mbuf);
        rte_pktmbuf_free(mbuf);
        *copied += !failed;
        *lost += !!failed;
        kept += !failed;
    }
    return kept;
}

void softnic_dpdk_free(struct frame *frames, uint16_t count)
{
    struct rte_mbuf *mbufs[64];
    for (uint16_t i = 0; i < count; i++)
        mbufs[i] = frames[i].mbuf;
    rte_pktmbuf_free_bulk(mbufs, count);
}

/* All or none. */
int softnic_dpdk_take(struct rte_mempool *pool, struct frame *out, uint16_t count)
{
    struct rte_mbuf *mbufs[64];
    if (rte_pktmbuf_alloc_bulk(pool, mbufs, count))
        return 0;
    for (uint16_t i = 0; i < count; i++) {
        out[i].mbuf = mbufs[i];
        out[i].data = rte_pktmbuf_mtod(mbufs[i], uint8_t *);
        out[i].room = rte_pktmbuf_tailroom(mbufs[i]);
        out[i].len = 0;
    }
    return 1;
}

/* Says how many the driver took. */
uint16_t softnic_dpdk_send(uint16_t port, uint16_t queue, const struct frame *frames, uint16_t count)
{
    struct rte_mbuf *mbufs[64];
    for (uint16_t i = 0; i < count; i++) {
        mbufs[i] = frames[i].mbuf;
        mbufs[i]->data_len = frames[i].len;
        mbufs[i]->pkt_len = frames[i].len;
    }
    if (!enter(port, queue))
        return 0;
    uint16_t sent = rte_eth_tx_burst(port, queue, mbufs, count);
    leave(port, queue);
    return sent;
}

/* None where the driver cannot say whether a frame is there: one that came just before the interrupt was armed would be slept over. */
int softnic_dpdk_interrupt_fd(uint16_t port, uint16_t queue)
{
    return rte_eth_rx_descriptor_status(port, queue, 0) < 0 ? -1 : rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue);
}

/* 1 where a frame is there already. */
int softnic_dpdk_arm(uint16_t port, uint16_t queue)
{
    int failed = rte_eth_dev_rx_intr_enable(port, queue);
    return failed ? failed : rte_eth_rx_descriptor_status(port, queue, 0) == RTE_ETH_RX_DESC_DONE;
}

void softnic_dpdk_disarm(uint16_t port, uint16_t queue)
{
    rte_eth_dev_rx_intr_disable(port, queue);
}

/* Frames that the port lost, in and out. */
uint64_t softnic_dpdk_lost(uint16_t port)
{
    struct rte_eth_stats stats;
    if (rte_eth_stats_get(port, &stats))
        return 0;
    return stats.imissed + stats.ierrors + stats.oerrors + stats.rx_nombuf;
}

/* Frames to all groups come in. */
int softnic_dpdk_all_groups(uint16_t port)
{
    return rte_eth_allmulticast_enable(port);
}

/* Frames to these groups come in, and to no others where the driver has a filter: where not, those to all of them do. None is lost
 * meanwhile. */
int softnic_dpdk_groups(uint16_t port, struct rte_ether_addr *macs, uint32_t count)
{
    int has_all = rte_eth_allmulticast_enable(port) == 0;
    int failed = rte_eth_dev_set_mc_addr_list(port, macs, count);
    if (!failed && has_all)
        rte_eth_allmulticast_disable(port);
    return failed;
}

