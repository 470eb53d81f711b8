//! Our types as the agent in the guest names them: in the words and numbers of libibverbs.

use serde_json::{Value, json};
use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{SendOp, Status, WcOpcode};

use super::setup::{ALL, Done};

/// The rights by name.
pub(super) fn access(access: Access) -> Vec<&'static str> {
    let names = ["local_write", "remote_write", "remote_read", "remote_atomic", "mw_bind"];
    ALL.into_iter().zip(names).filter(|(a, _)| access.allows(*a)).map(|(_, name)| name).collect()
}

/// A send work request, but for its own name and its memory; `None` for what the agent does not take for one.
pub(super) fn send(op: SendOp) -> Option<Value> {
    Some(match op {
        SendOp::Send => json!({"opcode": "send"}),
        SendOp::SendImm { imm } => json!({"opcode": "send_imm", "imm": imm}),
        SendOp::Write { remote_addr, rkey } => json!({"opcode": "write", "remote_addr": remote_addr, "rkey": rkey}),
        SendOp::WriteImm { remote_addr, rkey, imm } => {
            json!({"opcode": "write_imm", "remote_addr": remote_addr, "rkey": rkey, "imm": imm})
        }
        SendOp::Read { remote_addr, rkey } => json!({"opcode": "read", "remote_addr": remote_addr, "rkey": rkey}),
        SendOp::CompareSwap { remote_addr, rkey, compare, swap } => json!({
            "opcode": "compare_swap", "remote_addr": remote_addr, "rkey": rkey, "compare": compare, "swap": swap,
        }),
        SendOp::FetchAdd { remote_addr, rkey, add } => {
            json!({"opcode": "fetch_add", "remote_addr": remote_addr, "rkey": rkey, "add": add})
        }
        SendOp::SendInv { rkey } => json!({"opcode": "send_inv", "rkey": rkey}),
        SendOp::LocalInv { rkey } => json!({"opcode": "local_inv", "rkey": rkey}),
        // It has a command of its own.
        SendOp::BindWindow(_) => return None,
    })
}

/// A kind of queue pair.
pub(super) fn service(kind: QpKind) -> &'static str {
    match kind {
        QpKind::Rc => "RC",
        QpKind::Uc => "UC",
        QpKind::Ud | QpKind::Gsi => "UD",
    }
}

/// enum ibv_wc_status.
fn status(n: u64) -> Option<Status> {
    Some(match n {
        0 => Status::Success,
        1 => Status::LocLenErr,
        2 => Status::LocQpOpErr,
        4 => Status::LocProtErr,
        5 => Status::WrFlushErr,
        6 => Status::MwBindErr,
        7 => Status::BadRespErr,
        8 => Status::LocAccessErr,
        9 => Status::RemInvReqErr,
        10 => Status::RemAccessErr,
        11 => Status::RemOpErr,
        12 => Status::RetryExcErr,
        13 => Status::RnrRetryExcErr,
        _ => return None,
    })
}

/// enum ibv_wc_opcode.
fn opcode(n: u64) -> Option<WcOpcode> {
    Some(match n {
        0 => WcOpcode::Send,
        1 => WcOpcode::Write,
        2 => WcOpcode::Read,
        3 => WcOpcode::CompareSwap,
        4 => WcOpcode::FetchAdd,
        5 => WcOpcode::BindWindow,
        6 => WcOpcode::LocalInv,
        128 => WcOpcode::Recv,
        129 => WcOpcode::RecvWriteImm,
        _ => return None,
    })
}

/// The agent's answer to `poll`; `None` where there is something in it that we have no name for.
pub(super) fn completions(answer: &Value) -> Option<Vec<Done>> {
    let one = |c: &Value| {
        let status = status(c["status"].as_u64()?)?;
        let opcode = match status {
            Status::Success => Some(opcode(c["opcode"].as_u64()?)?),
            _ => None,
        };
        let number = |field: &str| c[field].as_u64().map(|n| n as u32);
        let (wr_id, len) = (c["wr_id"].as_u64()?, number("len")?);
        let (imm, invalidated, src_qp) = (number("imm"), number("invalidated"), number("src_qp"));
        Some(Done { wr_id, status, opcode, len, imm, invalidated, src_qp })
    };
    answer.as_array()?.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_as_the_agent_writes_them() {
        let answer = json!([
            {"wr_id": 7, "status": 0, "opcode": 129, "len": 5, "imm": 9, "src_qp": 3},
            {"wr_id": 8, "status": 10, "opcode": 77, "len": 0, "imm": null, "invalidated": 77},
        ]);
        let ok = Done {
            wr_id: 7,
            status: Status::Success,
            opcode: Some(WcOpcode::RecvWriteImm),
            len: 5,
            imm: Some(9),
            invalidated: None,
            src_qp: Some(3),
        };
        let bad = Done { wr_id: 8, status: Status::RemAccessErr, opcode: None, len: 0, imm: None, ..ok };
        let bad = Done { invalidated: Some(77), src_qp: None, ..bad };
        assert_eq!(completions(&answer), Some(vec![ok, bad]));
        assert_eq!(completions(&json!([{"wr_id": 7, "status": 99, "len": 0}])), None);
    }
}
