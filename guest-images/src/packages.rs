//! Which of Debian's packages are the kernel that a user asks for.

use crate::{
    ImageError,
    apt::{Apt, Paragraph, Suite, compare_versions},
    name::DebianVersion,
};

/// The part of the archive that has the kernels of a series.
pub(crate) fn suite(version: &DebianVersion) -> Suite {
    let row = SERIES.iter().find(|(series, _)| *series == version.series());
    row.map_or(Suite::TrixieBackports, |&(_, suite)| suite)
}

/// Finds the packages of the newest kernel that matches: its image first, then what that consists of besides
/// (newer kernels come as an empty image package and one each for the kernel and its modules).
pub(crate) fn resolve(apt: &Apt, version: &DebianVersion) -> Result<Vec<(String, String)>, ImageError> {
    let (major, minor) = version.series();
    let names = apt.names(&format!("linux-image-{major}.{minor}."))?;
    let names: Vec<String> = names.into_iter().filter(|name| is_image(name)).collect();
    let known = apt.show(&names)?;
    let best = known
        .iter()
        .filter_map(|paragraph| Some((paragraph.get("Package")?, paragraph.get("Version")?, paragraph)))
        .filter(|(_, package, _)| version.matches(upstream(package)))
        .max_by(|left, right| compare_versions(left.1, right.1));
    let Some((name, package, paragraph)) = best else {
        return Err(not_found(version, &known));
    };
    let mut packages = vec![(name.to_owned(), package.to_owned())];
    packages.extend(components(paragraph, package).map(|component| (component, package.to_owned())));
    Ok(packages)
}

/// The stock kernels for clouds, without debugging symbols or signatures.
fn is_image(package: &str) -> bool {
    package.ends_with("-cloud-amd64") && !package.contains("-unsigned")
}

/// `6.12.117` of `6.12.117-1~deb12u1`.
fn upstream(version: &str) -> &str {
    version.split('-').next().unwrap_or(version)
}

/// Packages of the same source in the very same version that the image depends on.
fn components(image: &Paragraph, version: &str) -> impl Iterator<Item = String> {
    let exactly = format!("(= {version})");
    let dependencies: Vec<&str> = image.get("Depends").unwrap_or_default().split(',').collect();
    let names =
        dependencies.into_iter().filter_map(move |dependency| dependency.trim().strip_suffix(&exactly));
    let names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
    names.into_iter()
}

fn not_found(version: &DebianVersion, known: &[Paragraph]) -> ImageError {
    let mut versions: Vec<&str> =
        known.iter().filter_map(|paragraph| paragraph.get("Version")).map(upstream).collect();
    versions.sort_by(|left, right| compare_versions(left, right));
    versions.dedup();
    let hint = if versions.is_empty() {
        let series: Vec<String> =
            SERIES.iter().map(|((major, minor), _)| format!("{major}.{minor}")).collect();
        format!("; it should have the series {}", series.join(", "))
    } else {
        format!("; of this series it has {}", versions.join(", "))
    };
    ImageError::NotOnMirror { what: format!("kernel {version}"), hint }
}

/// Series and where they are. One that is not here is looked for where new ones appear.
const SERIES: &[((u32, u32), Suite)] = &[
    ((6, 1), Suite::Bookworm),
    ((6, 12), Suite::Bookworm),
    ((6, 16), Suite::TrixieBackports),
    ((6, 17), Suite::TrixieBackports),
    ((6, 18), Suite::TrixieBackports),
    ((7, 2), Suite::TrixieBackports),
    ((7, 3), Suite::TrixieBackports),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_split_kernel_are_found_by_their_exact_version() {
        let mut paragraph = String::from(
            "Package: linux-image-7.3.4+deb13-cloud-amd64\nDepends: dracut | initramfs-tools (>= 0.120), ",
        );
        paragraph.push_str("linux-base-7.3.4 (= 7.3.4-1~bpo13+1), linux-modules-7.3.4 (= 7.3.4-1~bpo13+1)\n");
        let parsed = crate::apt::parse_control(&paragraph);
        let found: Vec<_> = components(&parsed[0], "7.3.4-1~bpo13+1").collect();
        assert_eq!(found, ["linux-base-7.3.4", "linux-modules-7.3.4"]);
    }

    #[test]
    fn only_stock_cloud_images_count() {
        assert!(is_image("linux-image-6.12.117+deb12-cloud-amd64"));
        for name in [
            "linux-image-6.12.117+deb12-amd64",
            "linux-image-6.12.117-cloud-amd64-dbg",
            "linux-image-6.12.117-cloud-amd64-unsigned",
        ] {
            assert!(!is_image(name), "{name}");
        }
    }
}
