//! Scenarios: every operation with every requester, IP version and MTU, and their names.

use softnic_wire::PathMtu;

use super::operations::{OPERATIONS, Operation};
use super::setup::{Setup, Side};

/// An operation on one kind of connection.
#[derive(Clone, Copy)]
pub(super) struct Scenario {
    pub(super) operation: &'static Operation,
    pub(super) requester: Side,
    pub(super) ipv6: bool,
    pub(super) mtu: PathMtu,
}

/// IP version and MTU of each column of the table.
pub(super) const PATHS: [(bool, PathMtu); 10] = {
    let mut paths = [(false, PathMtu::B256); 10];
    let mut i = 0;
    while i < paths.len() {
        paths[i] = (i >= 5, PathMtu::ALL[i % 5]);
        i += 1;
    }
    paths
};

/// What a path is called.
pub(super) fn path_name((ipv6, mtu): (bool, PathMtu)) -> String {
    format!("{}/{}", if ipv6 { "ipv6" } else { "ipv4" }, mtu.bytes())
}

impl Scenario {
    /// OPERATION/REQUESTER/IP/MTU.
    pub(super) fn name(&self) -> String {
        format!("{}/{}/{}", self.operation.name, self.requester.name(), path_name((self.ipv6, self.mtu)))
    }

    pub(super) fn setup(&self) -> Setup {
        (self.operation.setup)(Setup::new(self.requester, self.ipv6, self.mtu))
    }

    /// The short set: everything on one path, and the basic operations on the one that differs most from it.
    pub(super) fn is_short(&self) -> bool {
        match (self.ipv6, self.mtu) {
            (false, PathMtu::B1024) => true,
            (true, PathMtu::B4096) => self.operation.basic,
            _ => false,
        }
    }
}

/// All scenarios, in the order of the table.
pub(super) fn all() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for operation in OPERATIONS {
        for requester in [Side::Softnic, Side::Rxe] {
            scenarios.extend(PATHS.map(|(ipv6, mtu)| Scenario { operation, requester, ipv6, mtu }));
        }
    }
    scenarios
}

/// The scenarios that `names` mean: whole names, or as much of them from the left as is given up to a slash.
pub(super) fn named(names: &[String]) -> Result<Vec<Scenario>, String> {
    let fits = |name: &str, scenario: &Scenario| {
        let rest = scenario.name().strip_prefix(name).map(str::to_owned);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    for name in names {
        if !all().iter().any(|s| fits(name, s)) {
            return Err(format!("no scenario is called `{name}`; `cargo xtask interop --list` shows all names"));
        }
    }
    Ok(all().into_iter().filter(|s| names.iter().any(|n| fits(n, s))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Result<Vec<String>, String> {
        let of: Vec<String> = of.iter().map(|n| n.to_string()).collect();
        named(&of).map(|found| found.iter().map(Scenario::name).collect())
    }

    #[test]
    fn a_name_means_all_that_it_begins() {
        assert_eq!(names(&["read/rxe/ipv6/4096"]).unwrap(), ["read/rxe/ipv6/4096"]);
        let mtus = [256, 512, 1024, 2048, 4096];
        assert_eq!(names(&["rnr/rxe/ipv4"]).unwrap(), mtus.map(|m| format!("rnr/rxe/ipv4/{m}")));
        assert_eq!(names(&["send"]).unwrap().len(), 20, "not send-imm");
        assert_eq!(names(&["send", "send/rxe"]).unwrap().len(), 20, "each once");
        let refused = names(&["send", "sedn"]).unwrap_err();
        assert_eq!(refused, "no scenario is called `sedn`; `cargo xtask interop --list` shows all names");
    }

    #[test]
    fn the_short_set_has_every_operation_both_ways() {
        for operation in OPERATIONS {
            for requester in [Side::Softnic, Side::Rxe] {
                let mut short = all().into_iter().filter(Scenario::is_short);
                assert!(short.any(|s| s.operation.name == operation.name && s.requester == requester));
            }
        }
    }
}
