//! What a sentinel says. It is a server without data that knows one primary by name; the deployment decides what it
//! believes.

use crate::core::Core;
use crate::resp::Reply;

#[derive(Debug, Clone)]
pub(crate) struct SentinelView {
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The number of the decision that made it the primary.
    pub(crate) epoch: u64,
    pub(crate) quorum: usize,
    /// Sentinels that it reaches, and all that there are, with itself.
    pub(crate) reached: usize,
    pub(crate) sentinels: usize,
    pub(crate) replicas: Vec<(String, u16)>,
    pub(crate) is_down: bool,
}

/// Whether a sentinel has this command.
pub(crate) fn knows(command: &str) -> bool {
    const COMMANDS: [&str; 16] = [
        "PING",
        "SENTINEL",
        "SUBSCRIBE",
        "UNSUBSCRIBE",
        "PSUBSCRIBE",
        "PUNSUBSCRIBE",
        "PUBLISH",
        "INFO",
        "ROLE",
        "CLIENT",
        "AUTH",
        "HELLO",
        "ACL",
        "COMMAND",
        "QUIT",
        "RESET",
    ];
    COMMANDS.contains(&command)
}

/// The command SENTINEL.
pub(crate) fn command(core: &Core, words: &[&[u8]]) -> Reply {
    let Some(view) = &core.sentinel else { return crate::commands::SYNTAX };
    let is = |text: &str| crate::commands::is(words[1], text);
    let is_known = words.get(2).is_some_and(|name| *name == view.name.as_bytes());
    let no_such = Reply::error("ERR No such master with that name");
    if is("GET-MASTER-ADDR-BY-NAME") && words.len() == 3 {
        let place = || Reply::Array(vec![Reply::bulk(&view.host), Reply::bulk(view.port.to_string())]);
        return if is_known { place() } else { Reply::NilArray };
    }
    if is("MASTER") || is("CKQUORUM") || is("REPLICAS") || is("SLAVES") || is("SENTINELS") {
        if !is_known {
            return no_such;
        }
        if is("MASTER") {
            return primary(view);
        }
        if is("CKQUORUM") {
            return quorum(view);
        }
        let replicas = if is("SENTINELS") { &[][..] } else { &view.replicas[..] };
        let replica = |(host, port): &(String, u16)| {
            let fields = [("name", format!("{host}:{port}")), ("ip", host.clone()), ("port", port.to_string())];
            map(&fields, "slave")
        };
        return Reply::Array(replicas.iter().map(replica).collect());
    }
    if is("MASTERS") {
        return Reply::Array(vec![primary(view)]);
    }
    if is("MYID") {
        return Reply::bulk(&core.run_id);
    }
    Reply::error_of(format!("ERR Unknown sentinel subcommand '{}'", String::from_utf8_lossy(words[1])))
}

fn map(fields: &[(&str, String)], flags: &str) -> Reply {
    let flags = ("flags", flags.to_owned());
    let all = fields.iter().chain(std::iter::once(&flags));
    Reply::Map(all.flat_map(|(name, value)| [Reply::bulk(name), Reply::bulk(value)]).collect())
}

fn primary(view: &SentinelView) -> Reply {
    let fields = [
        ("name", view.name.clone()),
        ("ip", view.host.clone()),
        ("port", view.port.to_string()),
        ("config-epoch", view.epoch.to_string()),
        ("num-slaves", view.replicas.len().to_string()),
        ("num-other-sentinels", (view.sentinels - 1).to_string()),
        ("quorum", view.quorum.to_string()),
    ];
    map(&fields, if view.is_down { "master,s_down" } else { "master" })
}

fn quorum(view: &SentinelView) -> Reply {
    let (usable, majority) = (view.reached, view.sentinels / 2 + 1);
    let mut text = String::new();
    if usable < view.quorum {
        text = format!(
            "NOQUORUM {usable} usable Sentinels. Not enough available Sentinels to reach the specified quorum for \
                        this master. "
        );
    }
    if usable < majority {
        let lead = if text.is_empty() { format!("NOQUORUM {usable} usable Sentinels. ") } else { String::new() };
        text = format!("{text}{lead}Not enough available Sentinels to reach the majority and authorize a failover");
    }
    if text.is_empty() {
        let text = "Quorum and failover authorization can be reached";
        return Reply::Status(format!("OK {usable} usable Sentinels. {text}").into());
    }
    Reply::error_of(text)
}
