//! Which of Debian's packages are the kernel that a user asks for.

use crate::{
    ImageError,
    apt::{Apt, Paragraph, Suite, compare_versions},
    name::DebianVersion,
};

/// The parts of the archive that have kernels of a series, the first choice first.
pub(crate) fn suites(version: &DebianVersion) -> &'static [Suite] {
    let row = SERIES.iter().find(|(series, _)| *series == version.series());
    row.map_or(ELSEWHERE, |&(_, suites)| suites)
}

/// The part of the archive that a kernel's package of this version is from.
pub(crate) fn suite_of(package_version: &str) -> Suite {
    if package_version.contains("~bpo13") {
        Suite::TrixieBackports
    } else if package_version.contains("~deb12") || package_version.starts_with("6.1.") {
        Suite::Bookworm
    } else {
        Suite::Trixie
    }
}

/// What is known about kernels of a series when none of them is the one that is wanted.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    versions: Vec<String>,
    /// A package without which a kernel that matches is of no use.
    missing: Option<String>,
}

/// Finds the packages of the newest kernel that matches: its image first, then what that consists of besides
/// (newer kernels come as an empty image package and one each for the kernel and its modules).
pub(crate) fn resolve(
    apt: &Apt,
    version: &DebianVersion,
    seen: &mut Seen,
) -> Result<Option<Vec<(String, String)>>, ImageError> {
    let (major, minor) = version.series();
    let names = apt.names(&format!("linux-image-{major}.{minor}."))?;
    let names: Vec<String> = names.into_iter().filter(|name| is_image(name)).collect();
    let known = apt.show(&names)?;
    let mut candidates: Vec<(&str, &str, &Paragraph)> = known
        .iter()
        .filter_map(|paragraph| Some((paragraph.get("Package")?, paragraph.get("Version")?, paragraph)))
        .collect();
    seen.versions.extend(candidates.iter().map(|(_, package, _)| upstream(package).to_owned()));
    candidates.retain(|(_, package, _)| version.matches(upstream(package)));
    candidates.sort_by(|left, right| compare_versions(right.1, left.1));
    for (name, package, paragraph) in candidates {
        let wanted = components(paragraph, package);
        let present = apt.show(&wanted)?;
        let is_present = |component: &String| {
            let found = |paragraph: &Paragraph| {
                paragraph.get("Package") == Some(component) && paragraph.get("Version") == Some(package)
            };
            present.iter().any(found)
        };
        if let Some(missing) =
            wanted.iter().find(|component| is_essential(component) && !is_present(component))
        {
            seen.missing.get_or_insert_with(|| missing.clone());
            continue;
        }
        let mut packages = vec![(name.to_owned(), package.to_owned())];
        let present = wanted.into_iter().filter(is_present);
        packages.extend(present.map(|component| (component, package.to_owned())));
        return Ok(Some(packages));
    }
    Ok(None)
}

/// The stock kernels for clouds, without debugging symbols or signatures.
pub(crate) fn is_image(package: &str) -> bool {
    package.ends_with("-cloud-amd64") && !package.contains("-unsigned")
}

/// `6.12.117` of `6.12.117-1~deb12u1`.
pub(crate) fn upstream(version: &str) -> &str {
    version.split('-').next().unwrap_or(version)
}

/// Packages of the same source in the very same version that the image depends on.
pub(crate) fn components(image: &Paragraph, version: &str) -> Vec<String> {
    let exactly = format!("(= {version})");
    let dependencies = image.get("Depends").unwrap_or_default().split(',');
    let names = dependencies.filter_map(|dependency| dependency.trim().strip_suffix(&exactly));
    names.map(|name| name.trim().to_owned()).collect()
}

/// The base package has nothing that a guest could not do without, and is not always on the mirror.
pub(crate) fn is_essential(component: &str) -> bool {
    component.starts_with("linux-binary-") || component.starts_with("linux-modules-")
}

/// The error for a kernel that nothing has been found for.
pub(crate) fn not_found(version: &DebianVersion, seen: Seen) -> ImageError {
    if let Some(missing) = seen.missing {
        return ImageError::NotOnMirror {
            what: format!("kernel {version} as a whole"),
            hint: format!("; {missing} is not there"),
        };
    }
    let mut versions = seen.versions;
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
const SERIES: &[((u32, u32), &[Suite])] = &[
    ((6, 1), &[Suite::Bookworm]),
    ((6, 12), &[Suite::Bookworm, Suite::Trixie]),
    ((6, 16), &[Suite::TrixieBackports]),
    ((6, 17), &[Suite::TrixieBackports]),
    ((6, 18), &[Suite::TrixieBackports]),
    ((7, 2), &[Suite::TrixieBackports]),
    ((7, 3), &[Suite::TrixieBackports]),
];
const ELSEWHERE: &[Suite] = &[Suite::TrixieBackports];

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
        let found = components(&parsed[0], "7.3.4-1~bpo13+1");
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
