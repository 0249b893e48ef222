//! Which mirror the system uses.

use std::{env, fmt, fs, path::Path};

use super::control;
use crate::ImageError;

/// A part of the Debian archive that has packages we want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Suite {
    /// Debian 12 with its security updates.
    Bookworm,
    /// Debian 13 with its security updates.
    Trixie,
    /// Newer kernels for Debian 13.
    TrixieBackports,
}

impl Suite {
    fn parts(self) -> (&'static str, Option<&'static str>) {
        match self {
            Suite::Bookworm => ("bookworm", Some("bookworm-security")),
            Suite::Trixie => ("trixie", Some("trixie-security")),
            Suite::TrixieBackports => ("trixie-backports", None),
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.parts().0)
    }
}

/// Where the Debian archive is to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mirror {
    archive: String,
    security: String,
    /// The address of the security archive was derived from the other, not read from the system's sources.
    guessed: bool,
    /// The `Signed-By` of the system's entry, which may be a key itself.
    signed_by: Option<String>,
}

impl Mirror {
    /// The mirror given, or else the one in `NICVISOR_MIRROR`, or else the one that the system's apt uses.
    pub(crate) fn detect(given: Option<&str>) -> Result<Mirror, ImageError> {
        let variable = env::var("NICVISOR_MIRROR").ok().filter(|address| !address.is_empty());
        match given.map(str::to_owned).or(variable) {
            Some(address) => Ok(Mirror::at(&address)),
            None => find(&system_sources(Path::new("/etc/apt"))).ok_or(ImageError::NoMirror),
        }
    }

    /// Sources for `suite`, in deb822 format.
    pub(crate) fn sources(&self, suite: Suite) -> String {
        let (main, security) = suite.parts();
        let mut text = self.entry(&self.archive, main);
        if let Some(security) = security {
            text.push('\n');
            text.push_str(&self.entry(&self.security, security));
        }
        text
    }

    /// The same without the security archive, if its address is a guess that may be wrong.
    pub(crate) fn sources_without_guess(&self, suite: Suite) -> Option<String> {
        let (main, security) = suite.parts();
        (self.guessed && security.is_some()).then(|| self.entry(&self.archive, main))
    }

    fn at(archive: &str) -> Mirror {
        let archive = archive.trim_end_matches('/').to_owned();
        Mirror { security: format!("{archive}-security"), archive, guessed: true, signed_by: None }
    }

    fn entry(&self, address: &str, suite: &str) -> String {
        let key = match &self.signed_by {
            // The keyring of one release may lack the keys of the next; the package's has them all.
            _ if Path::new(KEYRING).exists() => format!("Signed-By: {KEYRING}\n"),
            Some(key) => format!("Signed-By: {key}\n"),
            None => String::new(),
        };
        format!("Types: deb\nURIs: {address}\nSuites: {suite}\nComponents: main\n{key}")
    }
}

/// An entry of the system's sources.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    address: String,
    suite: String,
    signed_by: Option<String>,
}

fn find(sources: &[Source]) -> Option<Mirror> {
    let archive = sources.iter().find(|source| is_archive(source))?;
    let mut mirror = Mirror::at(&archive.address);
    mirror.signed_by.clone_from(&archive.signed_by);
    if let Some(security) = sources.iter().find(|source| is_security(source)) {
        mirror.security.clone_from(&security.address);
        mirror.guessed = false;
    }
    Some(mirror)
}

/// Other archives use Debian's suite names too, so the key has to be Debian's as well if one is named.
fn is_debian(source: &Source) -> bool {
    source.signed_by.as_ref().is_none_or(|key| key.contains("debian-archive") || key.contains("BEGIN PGP"))
}

fn is_archive(source: &Source) -> bool {
    let suite = source.suite.as_str();
    let base =
        ["-updates", "-backports", "-proposed-updates"].iter().find_map(|suffix| suite.strip_suffix(suffix));
    is_debian(source) && SUITES.contains(&base.unwrap_or(suite))
}

fn is_security(source: &Source) -> bool {
    let base = source.suite.strip_suffix("-security").or_else(|| source.suite.strip_suffix("/updates"));
    is_debian(source) && base.is_some_and(|base| SUITES.contains(&base))
}

fn system_sources(etc: &Path) -> Vec<Source> {
    let mut sources = Vec::new();
    if let Ok(text) = fs::read_to_string(etc.join("sources.list")) {
        sources.extend(parse_lines(&text));
    }
    let parts = fs::read_dir(etc.join("sources.list.d")).into_iter().flatten().flatten();
    let mut parts: Vec<_> = parts.map(|entry| entry.path()).collect();
    parts.sort();
    for path in parts {
        // apt itself would complain about an unreadable file; here the other files may do.
        let text = fs::read_to_string(&path).unwrap_or_default();
        match path.extension().and_then(|suffix| suffix.to_str()) {
            Some("list") => sources.extend(parse_lines(&text)),
            Some("sources") => sources.extend(parse_paragraphs(&text)),
            _ => {}
        }
    }
    sources
}

/// `deb [option=value ...] address suite component...`
fn parse_lines(text: &str) -> Vec<Source> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Source> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let rest = line.strip_prefix("deb")?.strip_prefix([' ', '\t'])?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_ascii_whitespace();
    let (address, suite) = (words.next()?, words.next()?);
    let signed_by = options.split_ascii_whitespace().find_map(|option| option.strip_prefix("signed-by="));
    (words.any(|component| component == "main") && is_usable(address)).then(|| Source {
        address: address.trim_end_matches('/').to_owned(),
        suite: suite.to_owned(),
        signed_by: signed_by.map(str::to_owned),
    })
}

fn parse_paragraphs(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    for paragraph in control::parse(text) {
        let disabled = paragraph.get("Enabled").is_some_and(|value| ["no", "false", "0"].contains(&value));
        let binary = paragraph.words("Types").any(|kind| kind == "deb");
        let main = paragraph.words("Components").any(|component| component == "main");
        if disabled || !binary || !main {
            continue;
        }
        let addresses = paragraph.words("URIs").filter(|address| is_usable(address));
        for address in addresses {
            sources.extend(paragraph.words("Suites").map(|suite| Source {
                address: address.trim_end_matches('/').to_owned(),
                suite: suite.to_owned(),
                signed_by: paragraph.get("Signed-By").map(str::to_owned),
            }));
        }
    }
    sources
}

/// Installation media hold one release and ask to be inserted.
fn is_usable(address: &str) -> bool {
    !address.starts_with("cdrom:")
}

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

const SUITES: &[&str] = &[
    "oldoldstable",
    "oldstable",
    "stable",
    "testing",
    "unstable",
    "sid",
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
];

#[cfg(test)]
mod tests {
    use super::*;

    const DEB822: &str = "Types: deb deb-src
URIs: http://mirror.example/debian/
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/security
Suites: bookworm-security
Components: main
";

    #[test]
    fn both_formats_give_the_same_mirror() {
        let lines = "# comment\ndeb cdrom:[Debian 12]/ bookworm main\n\
            deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.example/debian bookworm main # x\n\
            deb-src http://other.example/debian bookworm main\n\
            deb http://mirror.example/security/ bookworm-security main\n";
        let mirror = find(&parse_lines(lines)).unwrap();
        assert_eq!(find(&parse_paragraphs(DEB822)).unwrap(), mirror);
        assert_eq!(mirror.archive, "http://mirror.example/debian");
        assert_eq!(mirror.security, "http://mirror.example/security");
        assert!(!mirror.guessed);
    }

    #[test]
    fn other_peoples_archives_are_not_taken_for_debians() {
        let lines = "deb [signed-by=/etc/apt/keyrings/vendor.asc] http://vendor.example/apt bookworm main\n\
            deb http://vendor.example/apt nodistro main\n\
            deb http://vendor.example/apt bookworm stable\n";
        assert_eq!(find(&parse_lines(lines)), None);
        assert_eq!(find(&parse_paragraphs(&DEB822.replace("Types: deb", "Enabled: no\nTypes: deb"))), None);
    }

    #[test]
    fn a_mirror_without_a_security_entry_gets_a_guess_that_can_be_left_out() {
        let mirror = find(&parse_lines("deb http://mirror.example/debian trixie main\n")).unwrap();
        assert!(
            mirror
                .sources(Suite::Bookworm)
                .contains("URIs: http://mirror.example/debian-security\nSuites: bookworm-security")
        );
        let without = mirror.sources_without_guess(Suite::Bookworm).unwrap();
        assert!(without.contains("Suites: bookworm\n") && !without.contains("security"));
        assert_eq!(mirror.sources_without_guess(Suite::TrixieBackports), None);
    }
}
