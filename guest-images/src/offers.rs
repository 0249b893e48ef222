//! Which kernels the mirror has.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    io::Write,
    path::Path,
    time::SystemTime,
};

use serde::{Deserialize, Serialize};

use crate::{
    ImageError, Store,
    apt::{Apt, Paragraph, Suite, compare_versions},
    packages,
    store::{read_json, to_json},
};

/// A kernel that can be fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The name to ask for it by, such as `debian:6.12.117`.
    pub name: String,
    /// The version of Debian's package.
    pub version: String,
    /// Bytes to be fetched.
    pub download: u64,
    /// Whether its headers and its source are there as well, so that its drivers can be edited.
    pub editable: bool,
}

/// All kernels that can be fetched.
#[derive(Clone, Debug, Serialize)]
pub struct Offers {
    /// When the oldest of the package lists was fetched.
    pub known_at: SystemTime,
    /// The kernels, by version.
    pub kernels: Vec<Offer>,
}

impl Store {
    /// The kernels that the mirror has, by the package lists of an earlier time, or by new ones if there are none
    /// or `update` asks for them.
    ///
    /// # Errors
    /// When lists are needed and cannot be fetched.
    pub fn offers(&self, update: bool) -> Result<Offers, ImageError> {
        let mut archives = Vec::new();
        for suite in SUITES {
            archives.push(match self.known_apt(suite).filter(|_| !update) {
                Some(apt) => apt,
                None => {
                    let _lock = self.cache.lock(self.progress)?;
                    self.apt(suite)?
                }
            });
        }
        let path = self.cache.path(REMEMBERED);
        let lists: Vec<SystemTime> = archives.iter().map(Apt::known_at).collect();
        let known_at = lists.iter().min().copied().unwrap_or(SystemTime::UNIX_EPOCH);
        if let Some(remembered) = read_json::<Remembered>(&path).filter(|known| known.lists == lists) {
            return Ok(Offers { known_at, kernels: remembered.kernels });
        }
        let _task = self.progress.start("reading Debian's package lists");
        let mut kernels: Vec<Offer> = Vec::new();
        for apt in &archives {
            // The first part of the archive that has a version is the one that it would be fetched from.
            for offer in of_suite(apt)? {
                if !kernels.iter().any(|known| known.name == offer.name) {
                    kernels.push(offer);
                }
            }
        }
        kernels.sort_by(|left, right| compare_versions(&left.version, &right.version));
        let remembered = Remembered { lists, kernels };
        // Without it the lists are only read again.
        let _ = remember(&path, &remembered);
        Ok(Offers { known_at, kernels: remembered.kernels })
    }
}

/// What package lists of these times have: reading them takes seconds.
#[derive(Serialize, Deserialize)]
struct Remembered {
    lists: Vec<SystemTime>,
    kernels: Vec<Offer>,
}

fn remember(path: &Path, remembered: &Remembered) -> std::io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
    file.write_all(&to_json(remembered))?;
    file.persist(path)?;
    Ok(())
}

fn of_suite(apt: &Apt) -> Result<Vec<Offer>, ImageError> {
    let names: Vec<String> =
        apt.names("linux-image-")?.into_iter().filter(|name| packages::is_image(name)).collect();
    let mut images: Vec<Paragraph> = apt.show(&names)?;
    images.retain(|image| {
        image.get("Version").is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
    });
    let mut beside: BTreeSet<String> = BTreeSet::new();
    for image in &images {
        beside.extend(packages::components(image, image.get("Version").unwrap_or_default()));
        beside.extend(headers(image));
        beside.extend(source(image));
    }
    let beside: Vec<String> = beside.into_iter().collect();
    let sizes = Sizes::new(&apt.show(&beside)?);
    let mut offers: Vec<Offer> = images.iter().filter_map(|image| offer(image, &sizes)).collect();
    // Of several packages of one version the newest is meant.
    offers.sort_by(|left, right| match left.name.cmp(&right.name) {
        Ordering::Equal => compare_versions(&right.version, &left.version),
        other => other,
    });
    offers.dedup_by(|later, earlier| later.name == earlier.name);
    Ok(offers)
}

/// None if a part of it is missing, or if it is a package that only stands for the newest kernel.
fn offer(image: &Paragraph, sizes: &Sizes) -> Option<Offer> {
    let version = image.get("Version")?;
    let release = release(image)?;
    if !release.starts_with(|letter: char| letter.is_ascii_digit()) || release.matches('.').count() < 2 {
        return None;
    }
    let mut download = size(image);
    for component in packages::components(image, version) {
        match sizes.get(&component, version) {
            Some(size) => download += size,
            None if packages::is_essential(&component) => return None,
            None => {}
        }
    }
    let has = |name: Option<String>| name.is_some_and(|name| sizes.get(&name, version).is_some());
    Some(Offer {
        name: format!("debian:{}", packages::upstream(version)),
        version: version.to_owned(),
        download,
        editable: has(headers(image)) && has(source(image)),
    })
}

fn release(image: &Paragraph) -> Option<&str> {
    image.get("Package")?.strip_prefix("linux-image-")
}

fn headers(image: &Paragraph) -> Option<String> {
    Some(format!("linux-headers-{}", release(image)?))
}

fn source(image: &Paragraph) -> Option<String> {
    let numbers: Vec<&str> = packages::upstream(image.get("Version")?).split('.').take(2).collect();
    Some(format!("linux-source-{}", numbers.join(".")))
}

/// Packages by name and version, with the sizes of their files.
struct Sizes(BTreeMap<(String, String), u64>);

impl Sizes {
    fn new(paragraphs: &[Paragraph]) -> Sizes {
        let entries = paragraphs.iter().filter_map(|paragraph| {
            let key = (paragraph.get("Package")?.to_owned(), paragraph.get("Version")?.to_owned());
            Some((key, size(paragraph)))
        });
        Sizes(entries.collect())
    }

    fn get(&self, name: &str, version: &str) -> Option<u64> {
        self.0.get(&(name.to_owned(), version.to_owned())).copied()
    }
}

fn size(paragraph: &Paragraph) -> u64 {
    paragraph.get("Size").and_then(|size| size.parse().ok()).unwrap_or(0)
}

const REMEMBERED: &str = "apt/offers.json";

/// In the order in which a version is looked for.
const SUITES: [Suite; 3] = [Suite::Bookworm, Suite::Trixie, Suite::TrixieBackports];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apt::parse_control;

    const LISTS: &str = "\
Package: linux-image-7.3.4+deb13-cloud-amd64\nVersion: 7.3.4-1~bpo13+1\nSize: 10\n\
Depends: linux-binary-7.3.4+deb13-cloud-amd64 (= 7.3.4-1~bpo13+1), linux-base-7.3.4+deb13-cloud-amd64 (= 7.3.4-1~bpo13+1)\n\n\
Package: linux-binary-7.3.4+deb13-cloud-amd64\nVersion: 7.3.4-1~bpo13+1\nSize: 2000\n\n\
Package: linux-headers-7.3.4+deb13-cloud-amd64\nVersion: 7.3.4-1~bpo13+1\nSize: 5\n\n\
Package: linux-source-7.3\nVersion: 7.3.4-1~bpo13+1\nSize: 7\n\n\
Package: linux-image-7.1.8+deb13-cloud-amd64\nVersion: 7.1.8-1~bpo13+1\nSize: 10\n\
Depends: linux-binary-7.1.8+deb13-cloud-amd64 (= 7.1.8-1~bpo13+1)\n\n\
Package: linux-image-6.1.0-57-cloud-amd64\nVersion: 6.1.192-3\nSize: 300\n\n\
Package: linux-image-cloud-amd64\nVersion: 6.1.192-3\nSize: 1\n";

    #[test]
    fn whole_kernels_are_offered_with_their_size_and_whether_they_can_be_edited() {
        let lists = parse_control(LISTS);
        let sizes = Sizes::new(&lists);
        let images = lists.iter().filter(|paragraph| release(paragraph).is_some());
        let offers: Vec<Offer> = images.filter_map(|image| offer(image, &sizes)).collect();
        let told: Vec<(&str, u64, bool)> =
            offers.iter().map(|offer| (offer.name.as_str(), offer.download, offer.editable)).collect();
        assert_eq!(told, [("debian:7.3.4", 2010, true), ("debian:6.1.192", 300, false)]);
    }
}
