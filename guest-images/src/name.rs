//! How a user names a kernel.

use std::{fmt, path::PathBuf, str::FromStr};

use crate::ImageError;

/// The kernel that a user asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KernelName {
    /// `debian:6.12`, the newest of a series, or `debian:6.12.113`, that very one.
    Debian(DebianVersion),
    /// A vmlinux, a bzImage or the directory of a kernel build.
    Path(PathBuf),
}

impl KernelName {
    /// Whether it names one very version, of which there may be no other copy than that on the mirror.
    pub fn is_exact(&self) -> bool {
        matches!(self, KernelName::Debian(version) if version.patch.is_some())
    }
}

/// The version of one of Debian's kernels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DebianVersion {
    major: u32,
    minor: u32,
    patch: Option<u32>,
}

impl DebianVersion {
    /// `6.12` or `6.12.113`.
    pub(crate) fn parse(text: &str) -> Option<DebianVersion> {
        let mut numbers = text.split('.').map(parse_number);
        let (major, minor) = (numbers.next()??, numbers.next()??);
        let patch = match numbers.next() {
            Some(number) => Some(number?),
            None => None,
        };
        numbers.next().is_none().then_some(DebianVersion { major, minor, patch })
    }

    /// The two numbers that every release of a stable series has in common.
    pub fn series(&self) -> (u32, u32) {
        (self.major, self.minor)
    }

    /// Whether a kernel with this upstream version (`6.12.113`) is what was asked for.
    pub fn matches(&self, upstream: &str) -> bool {
        let wanted = self.to_string();
        match upstream.strip_prefix(&wanted) {
            Some("") => true,
            Some(rest) => self.patch.is_none() && rest.starts_with('.'),
            None => false,
        }
    }
}

impl FromStr for KernelName {
    type Err = ImageError;

    fn from_str(name: &str) -> Result<KernelName, ImageError> {
        let bad = |reason: &str| ImageError::BadName { name: name.to_owned(), reason: reason.to_owned() };
        if let Some(version) = name.strip_prefix("debian:") {
            return DebianVersion::parse(version)
                .map(KernelName::Debian)
                .ok_or_else(|| bad("after debian: comes a version, as in debian:6.12 or debian:6.12.113"));
        }
        if name.is_empty() {
            return Err(bad(
                "give debian:VERSION, or the path of a vmlinux, a bzImage or a kernel build directory",
            ));
        }
        let path = PathBuf::from(name);
        if DebianVersion::parse(name).is_some() && !path.exists() {
            return Err(bad(&format!("Debian's kernels are named like debian:{name}")));
        }
        if let Some((kind, _)) = name.split_once(':')
            && !kind.contains('/')
            && !path.exists()
        {
            return Err(bad(&format!(
                "{kind}: is not known; kernels are fetched from Debian, as in debian:6.12"
            )));
        }
        Ok(KernelName::Path(path))
    }
}

impl fmt::Display for KernelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelName::Debian(version) => write!(f, "debian:{version}"),
            KernelName::Path(path) => path.display().fmt(f),
        }
    }
}

impl fmt::Display for DebianVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        self.patch.map_or(Ok(()), |patch| write!(f, ".{patch}"))
    }
}

fn parse_number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_an_exact_version_and_a_path_are_told_apart() {
        for name in ["debian:6.12", "debian:6.12.113", "/boot/vmlinuz", "linux-6.12", "./fedora:6.12"] {
            assert_eq!(name.parse::<KernelName>().unwrap().to_string(), name);
        }
        for name in [
            "",
            "debian:",
            "debian:6",
            "debian:6.",
            "debian:6.x",
            "debian:6.12.",
            "debian:6.1.2.3",
            "debian:+6.1",
            "fedora:6.12",
        ] {
            assert!(matches!(name.parse::<KernelName>(), Err(ImageError::BadName { .. })), "{name}");
        }
    }

    #[test]
    fn a_series_does_not_match_a_longer_number() {
        let version = DebianVersion::parse("6.1").unwrap();
        assert!(version.matches("6.1") && version.matches("6.1.192"));
        assert!(!version.matches("6.12.1") && !version.matches("6.16"));
        let exact = DebianVersion::parse("6.12.11").unwrap();
        assert!(exact.matches("6.12.11"));
        assert!(!exact.matches("6.12.113") && !exact.matches("6.12.11.1"));
    }
}
