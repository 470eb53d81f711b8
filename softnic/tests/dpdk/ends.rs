//! Two processes on devices of DPDK's, and what is run between them.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::meeting::Meeting;
pub(crate) use crate::meeting::Running;

/// A server and a client, with a device each.
pub(crate) struct Ends {
    /// What runs softnic, in whichever namespace.
    pub(crate) softnic: [Box<dyn Fn() -> Command>; 2],
    pub(crate) meeting: Meeting,
    /// Where the client finds the server.
    pub(crate) host: &'static str,
    pub(crate) folder: PathBuf,
}

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Ends {
    pub(crate) fn new(name: &str, devices: impl FnOnce(&str) -> [String; 2]) -> Ends {
        let folder = std::env::temp_dir().join(format!("softnic-dpdk-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let socket = folder.join("socket");
        let softnic = || Command::new(env!("CARGO_BIN_EXE_softnic"));
        Ends {
            softnic: [Box::new(softnic), Box::new(softnic)],
            meeting: Meeting::new(devices(socket.to_str().expect("UTF-8"))),
            host: "127.0.0.1",
            folder,
        }
    }

    pub(crate) fn memif(name: &str) -> Ends {
        Ends::new(name, |socket| {
            ["server", "client"].map(|role| {
                let number = if role == "server" { 1 } else { 2 };
                format!("dpdk:net_memif0,role={role},socket={socket},ip=10.9.0.{number}/24,ip=fd09::{number}/64")
            })
        })
    }

    pub(crate) fn vhost(name: &str) -> Ends {
        Ends::new(name, |socket| {
            [
                format!("dpdk:net_vhost0,iface={socket},ip=10.9.0.1/24"),
                format!("dpdk:net_virtio_user0,path={socket},ip=10.9.0.2/24"),
            ]
        })
    }

    /// The server, once it listens.
    pub(crate) fn server(&self) -> Running {
        self.meeting.server((self.softnic[0])(), &[])
    }

    pub(crate) fn client(&self, args: &[&str]) -> Running {
        Running::start(&mut self.meeting.client((self.softnic[1])(), self.host, args))
    }

    /// A run, and the client's outcome.
    pub(crate) fn run(&self, args: &[&str]) -> Value {
        let server = self.server();
        // A busy machine may keep an end from its core for longer than the ordinary timeout lets retries wait.
        let patient: &[&str] = if args[0].starts_with("raw") { &[] } else { &["--timeout", "18"] };
        let (code, text) = self.client(&[args, patient].concat()).end();
        assert_eq!(code, Some(0), "{args:?}: {text}");
        assert_eq!(server.end(), (Some(0), String::new()), "{args:?}");
        serde_json::from_str(text.lines().last().expect("a line")).unwrap_or_else(|e| panic!("{e}: {text}"))
    }
}
