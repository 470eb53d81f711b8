//! The transport of a plan as JSON has it: fields of their own for the settings of sr and lowar, as every version wrote them.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use softnic_runtime::api::Transport;

#[derive(Serialize, Deserialize)]
struct Fields {
    transport: String,
    /// The window of Selective Repeat in packets; `None` for the default.
    #[serde(default)]
    window: Option<u32>,
    /// The coding blocks of LoWAR: packets, and repair packets behind them.
    #[serde(default)]
    blocks: Option<(u8, u8)>,
}

pub(super) fn serialize<S: Serializer>(transport: &Transport, serializer: S) -> Result<S::Ok, S::Error> {
    let mut fields = Fields { transport: transport.name().into(), window: None, blocks: None };
    match *transport {
        Transport::SR => {}
        Transport::Sr { window } => fields.window = Some(window),
        Transport::Lowar(code) => fields.blocks = Some((code.r(), code.c())),
        // Settings without a field of their own are part of the text.
        other => fields.transport = other.to_string(),
    }
    fields.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Transport, D::Error> {
    let Fields { transport, window, blocks } = Fields::deserialize(deserializer)?;
    let text = match (window, blocks) {
        (None, None) => transport,
        (Some(window), None) => format!("{transport}:{window}"),
        (None, Some((r, c))) => format!("{transport}:{r},{c}"),
        (Some(_), Some(_)) => return Err(D::Error::custom("no transport has both a window and blocks")),
    };
    text.parse().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::super::Plan;
    use super::*;

    /// A plan as the first versions wrote it.
    fn plan(transport: &str) -> String {
        format!(
            r#"{{"op":"send_bw",{transport},"cc":null,"sizes":[65536],"amount":"usual","qps":1,"mtu":null,"depth":128,"timeout":14,"retry":7,"tclass":0,"verify":false,"wait_completion":false}}"#
        )
    }

    #[test]
    fn plans_are_read_and_written_as_every_version_did() {
        for (fields, text) in [
            (r#""transport":"rc","window":null,"blocks":null"#, "rc"),
            (r#""transport":"sr","window":null,"blocks":null"#, "sr"),
            (r#""transport":"sr","window":512,"blocks":null"#, "sr:512"),
            (r#""transport":"lowar","window":null,"blocks":[8,2]"#, "lowar:8,2"),
            (r#""transport":"lowar","window":null,"blocks":[32,1]"#, "lowar:32,1"),
            (r#""transport":"xp","window":null,"blocks":null"#, "xp"),
            (r#""transport":"xp:active=5ms,tail=2","window":null,"blocks":null"#, "xp:active=5ms,tail=2"),
            (r#""transport":"uc","window":null,"blocks":null"#, "uc"),
            (r#""transport":"ud","window":null,"blocks":null"#, "ud"),
        ] {
            let read: Plan = serde_json::from_str(&plan(fields)).unwrap();
            assert_eq!(read.transport.to_string(), text);
            assert_eq!(serde_json::to_string(&read).unwrap(), plan(fields));
        }
        let short: Plan = serde_json::from_str(&plan(r#""transport":"rc""#)).unwrap();
        assert_eq!(short.transport, Transport::Rc, "tools/perf_peer.py leaves out what is not for rc");
    }

    #[test]
    fn settings_that_the_transport_has_not_are_refused() {
        for fields in [
            r#""transport":"xq""#,
            r#""transport":"xp:tail=0""#,
            r#""transport":"rc","window":512"#,
            r#""transport":"uc","blocks":[8,2]"#,
            r#""transport":"sr","window":3"#,
            r#""transport":"lowar","blocks":[8,9]"#,
            r#""transport":"sr","window":512,"blocks":[8,2]"#,
        ] {
            assert!(serde_json::from_str::<Plan>(&plan(fields)).is_err(), "{fields}");
        }
    }
}
