//! A shared interface as metrics: every client by itself.

use softnic_runtime::share::Served;

use super::exposition::{Kind, Page};

/// The page of a shared interface.
pub(crate) fn page_of_share(interface: &str, served: &Served) -> Page {
    let mut page = Page::default();
    let labels = [("interface", interface)];
    page.add("softnic_share_clients", Kind::Gauge, "Clients", &labels, served.clients.len() as u64);
    let help = "Packets that were for none of the clients";
    page.add("softnic_share_nobody_total", Kind::Counter, help, &labels, served.nobody);
    for client in &served.clients {
        let [process, pid, uid] = [client.process.to_string(), client.pid.to_string(), client.uid.to_string()];
        let labels = [("interface", interface), ("process", &process), ("pid", &pid), ("uid", &uid)];
        for (name, value) in client.counters() {
            let help = format!("The counter {name} of a client");
            page.add(&format!("softnic_share_{name}_total"), Kind::Counter, &help, &labels, value);
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use softnic_runtime::share::ClientStatus;

    use super::super::strict;
    use super::*;

    #[test]
    fn every_client_is_there_by_its_process() {
        let client = |pid| ClientStatus { pid, ..ClientStatus::default() };
        let served = Served { clients: vec![client(7), client(8)], nobody: 3 };
        let families = strict::parse(&page_of_share("eth0", &served).text()).unwrap();
        assert_eq!(families["softnic_share_clients"].samples[0].value, 2.0);
        assert_eq!(families["softnic_share_nobody_total"].samples[0].value, 3.0);
        let (name, _) = ClientStatus::default().counters().into_iter().next().unwrap();
        let samples = &families[&format!("softnic_share_{name}_total")].samples;
        assert_eq!(samples[1].labels[2], ("pid".to_string(), "8".to_string()));
    }
}
