//! Places in JSON: RFC 6901 pointers, and the shorter paths that people write.

use std::borrow::Cow;

/// The JSON pointer that `path` stands for: itself if it is one (empty, or starting with `/`), or made from
/// names and numbers between dots, such as `0.linkinfo.info_kind`.
///
/// # Errors
/// Says what is wrong with it.
pub(crate) fn pointer(path: &str) -> Result<Cow<'_, str>, String> {
    if path.is_empty() {
        return Ok(Cow::Borrowed(path));
    }
    if path.starts_with('/') {
        let mut escapes = path.split('~').skip(1);
        return match escapes.all(|rest| rest.starts_with(['0', '1'])) {
            true => Ok(Cow::Borrowed(path)),
            false => Err(format!("{path:?} has a ~ that is neither ~0 nor ~1")),
        };
    }
    if path.split('.').any(str::is_empty) || path.contains(['[', ']', '$', ' ']) {
        return Err(format!("{path:?} is not a place in JSON"));
    }
    let parts = path.split('.').map(|part| format!("/{}", part.replace('~', "~0").replace('/', "~1")));
    Ok(Cow::Owned(parts.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_pointers() {
        assert_eq!(pointer("0.linkinfo.info_kind").unwrap(), "/0/linkinfo/info_kind");
        assert_eq!(pointer("/a~1b/0").unwrap(), "/a~1b/0");
        assert_eq!(pointer("a/b").unwrap(), "/a~1b");
        assert_eq!(pointer("").unwrap(), "");
        for wrong in ["$.a", "a[0]", "a..b", ".a", "/a~b", "/a~"] {
            assert!(pointer(wrong).is_err(), "{wrong}");
        }
    }
}
