//! `qperf`: how it is called, and whether every test that it was asked for has a result.
//!
//! It connects by the connection manager (`-cm 1`): by itself it addresses its peer by LID, which RoCE has none of. Its last test, `quit`, ends
//! the server.

use super::tools::{Case, PORT, Prints, case};

const PROGRAM: &str = "qperf";

/// The cases. Not of UC and UD: their queue pairs are not connected by the connection manager.
pub(super) fn cases() -> Vec<Case> {
    let options = [
        ("-cm 1 -t 1 rc_bw rc_lat rc_rdma_write_bw rc_rdma_read_bw ver_rc_compare_swap", true),
        ("-cm 1 -t 1 rc_bi_bw rc_rdma_write_lat rc_rdma_write_poll_lat rc_rdma_read_lat", false),
        ("-cm 1 -t 1 rc_compare_swap_mr rc_fetch_add_mr ver_rc_fetch_add", false),
    ];
    options.map(|(options, short)| case(PROGRAM, options, Prints::Qperf, short)).into()
}

/// The words of the command.
pub(super) fn words(options: &str, server: Option<&str>) -> Vec<String> {
    let port = PORT.to_string();
    let wait = [PROGRAM, "-lp", &port].map(str::to_owned).to_vec();
    let Some(address) = server else { return wait };
    let ask = [PROGRAM, address, "-lp", &port].into_iter().chain(options.split_whitespace()).chain(["quit"]);
    ask.map(str::to_owned).collect()
}

/// The tests among the options.
fn tests(options: &str) -> impl Iterator<Item = &str> {
    options.split_whitespace().filter(|word| word.contains("rc_"))
}

/// Whether each test of a client has a result.
pub(super) fn judge(options: &str, printed: &str) -> Result<(), String> {
    for test in tests(options) {
        let mut lines = printed.lines().skip_while(|line| line.strip_suffix(':') != Some(test)).skip(1);
        let result = lines.next().and_then(|line| line.split_once('=')?.1.split_whitespace().next()?.parse().ok());
        if result.is_none_or(|result: f64| result <= 0.0) {
            return Err(format!("the client has no result of {test}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_without_a_result_is_a_failure() {
        let options = "-cm 1 -t 1 rc_bw rc_lat";
        let good = "rc_bw:\n    bw  =  463 MB/sec\nrc_lat:\n    latency  =  192 us\nquit:\n";
        assert_eq!(judge(options, good), Ok(()));
        for (from, to) in [("463", "0"), ("rc_lat:\n", ""), ("192 us", ""), ("    latency  =  192 us\n", "")] {
            assert!(judge(options, &good.replace(from, to)).is_err(), "{to} in the place of {from}");
        }
    }

    #[test]
    fn the_client_ends_the_server() {
        let client = words("-cm 1 rc_bw", Some("10.0.0.1")).join(" ");
        assert_eq!(client, format!("qperf 10.0.0.1 -lp {PORT} -cm 1 rc_bw quit"));
        assert_eq!(words("-cm 1 rc_bw", None).join(" "), format!("qperf -lp {PORT}"));
    }
}
