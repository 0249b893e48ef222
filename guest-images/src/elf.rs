//! The little that is needed from ELF files.

use object::{
    Endianness, Object, ObjectSection,
    elf::{DT_NEEDED, DT_NULL, FileHeader64, PT_DYNAMIC, PT_INTERP},
    read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader},
};

/// What a program or library needs to run.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// The path of the dynamic linker.
    pub(crate) interpreter: Option<String>,
    /// The names of libraries.
    pub(crate) libraries: Vec<String>,
}

/// Reads what a program or library needs.
pub(crate) fn needs(bytes: &[u8]) -> Result<Needs, object::Error> {
    let header = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, bytes)?;
    let mut needs = Needs::default();
    for segment in segments {
        if segment.p_type(endian) == PT_INTERP {
            let path = segment.interpreter(endian, bytes)?;
            needs.interpreter = path.map(|path| String::from_utf8_lossy(path).into_owned());
        }
    }
    let Some(dynamic) = segments.iter().find(|segment| segment.p_type(endian) == PT_DYNAMIC) else {
        return Ok(needs);
    };
    let sections = header.sections(endian, bytes)?;
    let Some((_, link)) = sections.dynamic(endian, bytes)? else {
        return Ok(needs);
    };
    let strings = sections.strings(endian, bytes, link)?;
    for entry in dynamic.dynamic(endian, bytes)?.unwrap_or_default() {
        match entry.d_tag(endian) {
            DT_NULL => break,
            DT_NEEDED => {
                needs.libraries.push(String::from_utf8_lossy(entry.string(endian, strings)?).into_owned())
            }
            _ => {}
        }
    }
    Ok(needs)
}

/// Whether this is a 64-bit ELF file for x86.
pub(crate) fn is_x86_64(bytes: &[u8]) -> bool {
    matches!(bytes.get(..5), Some([0x7f, b'E', b'L', b'F', 2])) && bytes.get(18..20) == Some(&[62, 0])
}

/// What a kernel module says about itself: the `key=value` strings of its `.modinfo` section.
pub(crate) fn modinfo(bytes: &[u8]) -> Result<Vec<(String, String)>, object::Error> {
    let file = ElfFile64::<Endianness>::parse(bytes)?;
    let Some(section) = file.section_by_name(".modinfo") else {
        return Ok(Vec::new());
    };
    let strings = section.data()?.split(|&byte| byte == 0).filter(|string| !string.is_empty());
    Ok(strings
        .filter_map(|string| {
            let string = String::from_utf8_lossy(string);
            string.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()))
        })
        .collect())
}
