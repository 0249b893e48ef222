//! Why a fault cannot be injected.

use thiserror::Error;

/// Why a fault cannot be injected; the device is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FaultError {
    /// A name that the device does not have.
    #[error("there is no {what} {name:?}{}; {}", hint(suggestion), known_names(known))]
    Unknown {
        /// What was named.
        what: String,
        /// The name.
        name: String,
        /// The name that was probably meant.
        suggestion: Option<String>,
        /// All names that there are.
        known: Vec<String>,
    },
    /// Several channels have the command.
    #[error("more than one channel has a command {command}: say which with channel = ... ({channels})")]
    Ambiguous {
        /// The command.
        command: String,
        /// The channels.
        channels: String,
    },
    /// A queue beyond the last.
    #[error("there is no queue {kind} {number}: use {kind} 0 to {kind} {}, or {kind} for all", count.saturating_sub(1))]
    QueueNumber {
        /// Its kind.
        kind: String,
        /// What stands for its number.
        number: String,
        /// How many there are.
        count: u32,
    },
    /// A number that has too many bits for its field.
    #[error("{number:#x} does not fit {field}, which has {bits} bits")]
    TooLarge {
        /// The field.
        field: String,
        /// The number.
        number: u64,
        /// The field's width.
        bits: u8,
    },
    /// An argument that the event cannot do without.
    #[error("event {event} needs the argument {argument}")]
    MissingArgument {
        /// The event.
        event: String,
        /// The argument.
        argument: String,
    },
    /// Parts of the fault that make no sense, or not together.
    #[error("{0}")]
    Contradiction(String),
    /// The device cannot do this now.
    #[error("not possible now: {0}")]
    NotNow(String),
    /// There are too many faults already.
    #[error("a device takes {0} faults at once: lift some first")]
    TooMany(usize),
}

impl FaultError {
    /// The position of `name` among `known`, or an error that says what there is. `what` says what is looked
    /// for, such as `command`.
    pub fn find<'a>(
        what: impl FnOnce() -> String,
        name: &str,
        known: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<usize, FaultError> {
        if let Some(position) = known.clone().position(|candidate| candidate == name) {
            return Ok(position);
        }
        let lower = name.to_lowercase();
        let closeness = |candidate: &str| strsim::jaro_winkler(&candidate.to_lowercase(), &lower);
        // Drivers prefix their names: the part that tells them apart is enough of a hint.
        let containing =
            known.clone().find(|candidate| !lower.is_empty() && candidate.to_lowercase().contains(&lower));
        let closest =
            containing.or_else(|| known.clone().max_by(|a, b| closeness(a).total_cmp(&closeness(b))));
        let is_close = |candidate: &&str| containing.is_some() || closeness(candidate) > CLOSE;
        let suggestion = closest.filter(is_close).map(str::to_owned);
        let known = known.map(str::to_owned).collect();
        Err(FaultError::Unknown { what: what(), name: name.to_owned(), suggestion, known })
    }
}

fn hint(suggestion: &Option<String>) -> String {
    suggestion.as_ref().map_or_else(String::new, |name| format!(" (did you mean {name:?}?)"))
}

fn known_names(known: &[String]) -> String {
    match known {
        [] => "this device has none".to_owned(),
        _ => format!("there are: {}", known.join(", ")),
    }
}

/// From here on (of 1) a name is taken for a misspelling of another.
const CLOSE: f64 = 0.75;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str, known: &[&str]) -> String {
        FaultError::find(|| "command".into(), name, known.iter().copied()).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        assert_eq!(
            message("CREATE_WQ", &["MANA_CREATE_WQ_OBJ", "CREATE_CQ"]),
            "there is no command \"CREATE_WQ\" (did you mean \"MANA_CREATE_WQ_OBJ\"?); \
             there are: MANA_CREATE_WQ_OBJ, CREATE_CQ"
        );
        assert_eq!(message("zzz", &["OPEN"]), "there is no command \"zzz\"; there are: OPEN");
        assert_eq!(message("open", &[]), "there is no command \"open\"; this device has none");
        let prefixed = message("create_tx", &["X_CREATE_RX_QUEUE", "X_CREATE_TX_QUEUE"]);
        assert!(prefixed.contains("did you mean \"X_CREATE_TX_QUEUE\"?"), "{prefixed}");
        assert!(message("open", &["OPEN"]).contains("did you mean \"OPEN\"?"));
    }
}
