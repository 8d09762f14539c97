//! The audit of a pair.

use super::Shared;
use super::reply::Reply;
use super::scripts::{Call, SCRIPTS};
use crate::model::error::{Error, Result};
use crate::model::topic::GroupPartition;
use crate::store::{Defect, Finding, VerifyCursor, VerifyPage};

/// Where an audit begins: with the bodies.
const FIRST: &str = "h0";

impl Shared {
    pub(super) async fn audit(
        &self,
        pair: &GroupPartition,
        from: Option<&VerifyCursor>,
        repair: bool,
    ) -> Result<VerifyPage> {
        let keys = self.keys.pair(pair);
        let places = [&keys.reservations, &keys.zset, &keys.hash, &keys.attempts, &keys.dead_zset, &keys.dead_hash];
        let from = from.map_or(FIRST, |VerifyCursor(cursor)| cursor);
        if !is_cursor(from) {
            return Err(Error::invalid("cursor", "is not one that dwell gave; begin without a cursor"));
        }
        let call = Call::new(&SCRIPTS.audit, &places.map(String::as_str))
            .arg(from)
            .arg(if repair { "repair" } else { "" })
            .arg(self.time_override());
        let mut reply = Reply::of(self.connection.eval(&call).await?)?;
        reply.text()?;
        let (seen, next) = (reply.number()?, reply.maybe_text()?.map(VerifyCursor));
        let mut page = VerifyPage { seen, findings: Vec::with_capacity(reply.left() / 2), next };
        while reply.left() > 0 {
            let (id, name) = (reply.text()?, reply.text()?);
            let defect = Defect::ALL.into_iter().find(|defect| defect.name() == name);
            let defect = defect.ok_or_else(|| Error::bug(format!("the script found {name:?}")))?;
            page.findings.push(Finding { id, defect });
        }
        Ok(page)
    }
}

/// One of the letters of the script, and a number.
fn is_cursor(text: &str) -> bool {
    let number = text.strip_prefix(['h', 'z', 'a', 'd', 'g']).unwrap_or_default();
    !number.is_empty() && number.len() <= 20 && number.bytes().all(|byte| byte.is_ascii_digit())
}
