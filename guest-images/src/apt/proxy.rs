//! The proxy that apt is set up with.

use ureq::Proxy;

/// How a host is reached over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// As the environment says (`http_proxy`, `no_proxy`).
    Environment,
    /// Without a proxy.
    Direct,
    /// By way of this one.
    Proxy(String),
    /// As a program decides that apt knows how to ask.
    Unknown,
}

impl Route {
    /// The route to `host` by what `apt-config dump` says.
    pub(super) fn of(dump: &str, host: &str) -> Route {
        let value = |name: &str| {
            let mut lines = dump.lines().filter_map(|line| line.strip_suffix("\";")?.split_once(" \""));
            lines.rfind(|(key, value)| key.eq_ignore_ascii_case(name) && !value.is_empty())
        };
        let own = format!("Acquire::http::Proxy::{host}");
        match value(&own).or_else(|| value("Acquire::http::Proxy")) {
            Some((_, "DIRECT")) => Route::Direct,
            Some((_, proxy)) => Route::Proxy(proxy.to_owned()),
            None if DETECTORS.iter().any(|name| value(name).is_some()) => Route::Unknown,
            None => Route::Environment,
        }
    }

    /// The proxy; an error if it is not known.
    pub(super) fn proxy(self) -> Result<Option<Proxy>, String> {
        match self {
            Route::Environment => Ok(Proxy::try_from_env()),
            Route::Direct => Ok(None),
            Route::Proxy(address) => Proxy::new(&address).map(Some).map_err(|error| error.to_string()),
            Route::Unknown => Err("apt asks a program for its proxy".into()),
        }
    }
}

const DETECTORS: [&str; 2] = ["Acquire::http::Proxy-Auto-Detect", "Acquire::http::ProxyAutoDetect"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_the_host_comes_before_what_is_said_of_all() {
        let dump = "Acquire::http \"\";\nAcquire::http::Proxy \"http://proxy.example:3128\";\n\
            Acquire::http::Proxy::mirror.example \"DIRECT\";\n";
        assert_eq!(Route::of(dump, "mirror.example"), Route::Direct);
        assert_eq!(Route::of(dump, "other.example"), Route::Proxy("http://proxy.example:3128".into()));
        assert_eq!(Route::of("Acquire::http::Proxy \"\";\n", "x"), Route::Environment);
        assert_eq!(Route::of("Acquire::http::Proxy-Auto-Detect \"/bin/x\";\n", "x"), Route::Unknown);
        assert!(Route::Unknown.proxy().is_err() && Route::Proxy("http://a:1".into()).proxy().is_ok());
        assert!(Route::Proxy("x y".into()).proxy().is_err());
    }
}
