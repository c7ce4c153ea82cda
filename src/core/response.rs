//! What a caller is answered: HTTP's shape of it is made at the edge, for whoever calls by HTTP.

use crate::agents::Outcome;
use crate::api::{Problem, Reply};
use crate::approvals::Approval;
use crate::gateways::Receipt;
use std::sync::Arc;

/// The answer to a wish.
#[derive(Debug, Clone)]
pub enum Response {
    /// Of a rule that nobody but HTTP asks, in its shape already.
    Http(Reply),
    /// It is not done.
    Refused(Problem),
    /// What became of a wish about agents.
    Agents(Box<Outcome>),
    /// An approval as it is now that it is decided.
    Decided(Arc<Approval>),
    /// To a gateway's threads.
    Inbox(Receipt),
}

impl Response {
    /// Whether what was wished is done, or under way.
    pub fn is_granted(&self) -> bool {
        match self {
            Self::Http(reply) => reply.status < 400,
            Self::Refused(_) => false,
            Self::Agents(_) | Self::Decided(_) => true,
            Self::Inbox(receipt) => receipt.is_granted(),
        }
    }

    /// As HTTP has it. A gateway's threads do not call by HTTP: of a receipt it tells only whether it is one.
    pub fn http(&self) -> Reply {
        match self {
            Self::Http(reply) => reply.clone(),
            Self::Refused(problem) => problem.clone().into(),
            Self::Agents(outcome) => outcome.http(),
            Self::Decided(approval) => Reply::ok(&approval.shown()),
            Self::Inbox(receipt) if receipt.is_granted() => Reply::no_content(),
            Self::Inbox(_) => Problem::new(409, "not_taken", "it was not taken").into(),
        }
    }
}

impl From<Response> for Reply {
    fn from(response: Response) -> Self {
        match response {
            Response::Http(reply) => reply,
            other => other.http(),
        }
    }
}

impl From<Reply> for Response {
    fn from(reply: Reply) -> Self {
        Self::Http(reply)
    }
}

impl From<Problem> for Response {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

impl From<Outcome> for Response {
    fn from(outcome: Outcome) -> Self {
        Self::Agents(Box::new(outcome))
    }
}

impl From<Receipt> for Response {
    fn from(receipt: Receipt) -> Self {
        Self::Inbox(receipt)
    }
}
