//! Devices of the time of a kernel.
//!
//! A driver and the device below it seldom are of the same age. What a device offers is therefore a matter of two
//! things besides its configuration: what the driver announces by the protocol itself (capability flags, versions of
//! messages), which every device obeys, and its [`Profile`]: how old the device is.
//!
//! * `current`, the default, is a device that has all that its configuration says. Nothing but the protocol's own
//!   announcements limits it, because drivers are patched and backported: Debian's 6.1 knows more of MANA than Linux
//!   6.1 did, and the driver that somebody is about to test knows more than any release.
//! * `linux-X.Y` is a device of the time of that release: it has what the driver of Linux X.Y knows, and answers what
//!   came later as a device that never heard of it.
//! * `announced` is the same with the release that the driver tells. One that tells none gets the device of
//!   [`KernelVersion::OLDEST`].
//!
//! A device has a table of features and the release that each came with ([`Since`]), and asks [`Profile::offers`].
//! What a scenario asks for by a fault or an event happens whatever the profile.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A release of Linux, without its point releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KernelVersion {
    /// `VERSION` of its Makefile.
    pub major: u32,
    /// `PATCHLEVEL` of its Makefile.
    pub minor: u32,
}

impl KernelVersion {
    /// The oldest release that tables of features go back to: what it knows, every profile has.
    pub const OLDEST: KernelVersion = KernelVersion::new(6, 1);

    /// Linux `major`.`minor`.
    pub const fn new(major: u32, minor: u32) -> KernelVersion {
        KernelVersion { major, minor }
    }

    /// The release that a text such as `6.12.113+deb12-cloud-amd64` (`uname -r`) starts with.
    pub fn of_release(text: &str) -> Option<KernelVersion> {
        let (major, rest) = text.split_once('.')?;
        let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
        Some(KernelVersion { major: number(major)?, minor: number(&rest[..digits])? })
    }
}

/// Digits only: [`u32::from_str`] takes a sign as well.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

impl Display for KernelVersion {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// The release that a feature came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Since(KernelVersion);

impl Since {
    /// It came with Linux `major`.`minor`.
    pub const fn linux(major: u32, minor: u32) -> Since {
        Since(KernelVersion::new(major, minor))
    }

    /// That release.
    pub const fn release(self) -> KernelVersion {
        self.0
    }
}

/// How old a device is. See the [module](self).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Profile {
    /// It has all that its configuration says.
    #[default]
    Current,
    /// It has what the driver of this release knows.
    Linux(KernelVersion),
    /// It has what the driver of the release knows that the driver says it is from.
    Announced,
}

impl Profile {
    /// Whether a device of this age has what came `since`, where the driver told that it is from `announced`.
    pub fn offers(self, since: Since, announced: Option<KernelVersion>) -> bool {
        let release = match self {
            Profile::Current => return true,
            Profile::Linux(release) => release,
            Profile::Announced => announced.unwrap_or(KernelVersion::OLDEST),
        };
        release >= since.release()
    }

    /// The release that the device is older than `since`, if that is certain before any driver speaks.
    pub fn always_before(self, since: Since) -> Option<KernelVersion> {
        match self {
            Profile::Linux(release) if release < since.release() => Some(release),
            _ => None,
        }
    }
}

/// A text that names no profile.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0:?} is not {expected}", expected = Profile::EXPECTED)]
pub struct UnknownProfile(String);

impl Profile {
    /// What a profile can be, for messages.
    pub const EXPECTED: &str = "current, announced, or linux- and a release from 6.1 on, such as linux-6.12";
}

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(text: &str) -> Result<Profile, UnknownProfile> {
        match text {
            "current" => return Ok(Profile::Current),
            "announced" => return Ok(Profile::Announced),
            _ => (),
        }
        let version = text.strip_prefix(PREFIX).and_then(KernelVersion::of_release);
        // Point releases and names of distributions say nothing that a table of features knows.
        let version = version.filter(|version| format!("{PREFIX}{version}") == text);
        match version.filter(|version| *version >= KernelVersion::OLDEST) {
            Some(version) => Ok(Profile::Linux(version)),
            None => Err(UnknownProfile(text.to_owned())),
        }
    }
}

impl Display for Profile {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Profile::Current => formatter.write_str("current"),
            Profile::Linux(version) => write!(formatter, "{PREFIX}{version}"),
            Profile::Announced => formatter.write_str("announced"),
        }
    }
}

impl TryFrom<String> for Profile {
    type Error = UnknownProfile;

    fn try_from(text: String) -> Result<Profile, UnknownProfile> {
        text.parse()
    }
}

impl From<Profile> for String {
    fn from(profile: Profile) -> String {
        profile.to_string()
    }
}

const PREFIX: &str = "linux-";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn releases_are_read_from_what_uname_says() {
        for (text, expected) in [
            ("6.12.113+deb12-cloud-amd64", Some((6, 12))),
            ("6.1", Some((6, 1))),
            ("7.3-rc1", Some((7, 3))),
            ("7.", None),
            ("+7.1", None),
            ("7.+1", None),
            ("6", None),
            ("", None),
            ("6.99999999999", None),
        ] {
            let version = expected.map(|(major, minor)| KernelVersion { major, minor });
            assert_eq!(KernelVersion::of_release(text), version, "{text}");
        }
    }

    #[test]
    fn names_that_are_no_profile_are_refused() {
        for text in
            ["", "old", "6.1", "linux", "linux-", "linux-6", "linux-6.12.1", "linux-6.0", "linux-06.12"]
        {
            let message = text.parse::<Profile>().unwrap_err().to_string();
            assert!(message.contains("linux-6.12") && message.contains("announced"), "{message}");
        }
    }

    #[test]
    fn a_driver_that_tells_no_release_gets_the_oldest_device() {
        let (first, later) = (Since(KernelVersion::OLDEST), Since::linux(6, 2));
        assert!(Profile::Announced.offers(first, None) && !Profile::Announced.offers(later, None));
        assert!(Profile::Announced.offers(later, Some(KernelVersion::new(6, 2))));
        assert!(!Profile::Announced.offers(later, Some(KernelVersion::new(0, 0))));
    }

    #[test]
    fn only_a_named_release_is_certain_before_a_driver_speaks() {
        let since = Since::linux(6, 6);
        let old = KernelVersion::new(6, 1);
        assert_eq!(Profile::Linux(old).always_before(since), Some(old));
        for profile in [Profile::Current, Profile::Announced, Profile::Linux(KernelVersion::new(6, 6))] {
            assert_eq!(profile.always_before(since), None);
        }
    }

    proptest! {
        #[test]
        fn a_feature_is_there_from_its_release_on(
            release in (6..9_u32, 1..30_u32), since in (6..9_u32, 0..30_u32), announced: Option<(u32, u32)>,
        ) {
            let (release, since) = (KernelVersion::new(release.0, release.1), Since::linux(since.0, since.1));
            let announced = announced.map(|(major, minor)| KernelVersion { major, minor });
            let expected = release >= since.release();
            prop_assert_eq!(Profile::Linux(release).offers(since, announced), expected);
            prop_assert_eq!(Profile::Announced.offers(since, Some(release)), expected);
            prop_assert!(Profile::Current.offers(since, announced));
        }

        #[test]
        fn a_profile_is_read_as_it_is_written(major in 6..100_u32, minor in 1..100_u32) {
            for profile in
                [Profile::Current, Profile::Announced, Profile::Linux(KernelVersion { major, minor })]
            {
                prop_assert_eq!(profile.to_string().parse(), Ok(profile));
                let json = serde_json::to_string(&profile).unwrap();
                prop_assert_eq!(serde_json::from_str::<Profile>(&json).unwrap(), profile);
            }
        }
    }
}
