//! The bzImage (vmlinuz) container: a real-mode part with the setup header, and a compressed vmlinux.
//! Layout: Documentation/arch/x86/boot.rst of the kernel.

use super::ImageError;
use super::unpack::unpack;

/// What the setup header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SetupHeader {
    /// The header itself, from offset 0x1f1 to its end, as the zero page takes it.
    pub(super) bytes: Vec<u8>,
    /// Longest command line, without the final zero.
    pub(super) command_line_limit: usize,
    /// Highest address that an initrd byte may have.
    pub(super) initrd_limit: u64,
    /// Memory that the kernel needs from its load address before it reads the memory map.
    pub(super) init_size: u64,
    /// Release and build, as `file` prints it.
    pub(super) version: Option<String>,
}

/// Whether `file` starts with a Linux setup part.
pub(super) fn is_bzimage(file: &[u8]) -> bool {
    file.get(BOOT_FLAG..BOOT_FLAG + 2) == Some(&[0x55, 0xaa]) && file.get(HEADER..HEADER + 4) == Some(b"HdrS")
}

/// Reads the header and unpacks the vmlinux.
pub(super) fn read(file: &[u8]) -> Result<(SetupHeader, Vec<u8>), ImageError> {
    let length = file.len() as u64;
    let truncated = |part, end: usize| ImageError::Truncated { part, end: end as u64, length };
    if file.len() < HEADER_ROOM {
        return Err(truncated("the setup header", HEADER_ROOM));
    }
    let [minor, major] = [file[VERSION], file[VERSION + 1]];
    if (major, minor) < (2, 8) {
        return Err(ImageError::OldProtocol { major, minor });
    }
    // The second byte of the jump over the header tells where the header ends.
    let header_end = (0x202 + usize::from(file[JUMP + 1])).min(HEADER_ROOM);
    let setup_sectors = match file[SETUP_SECTORS] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (setup_sectors + 1) * SECTOR + u32_at(file, PAYLOAD_OFFSET) as usize;
    let end = start + u32_at(file, PAYLOAD_LENGTH) as usize;
    let payload = file.get(start..end).ok_or_else(|| truncated("the compressed kernel", end))?;
    let header = SetupHeader {
        bytes: file[SETUP_SECTORS..header_end].to_vec(),
        command_line_limit: u32_at(file, COMMAND_LINE_SIZE) as usize,
        initrd_limit: u64::from(u32_at(file, INITRD_ADDRESS_MAX)),
        init_size: if (major, minor) >= (2, 10) { u64::from(u32_at(file, INIT_SIZE)) } else { 0 },
        version: version(file),
    };
    Ok((header, unpack(payload)?))
}

fn version(file: &[u8]) -> Option<String> {
    let offset = usize::from(u16::from_le_bytes([file[KERNEL_VERSION], file[KERNEL_VERSION + 1]]));
    let text = file.get(offset + SECTOR..)?;
    let end = text.iter().take(256).position(|byte| *byte == 0)?;
    (offset != 0).then(|| String::from_utf8_lossy(&text[..end]).into_owned())
}

fn u32_at(file: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([file[offset], file[offset + 1], file[offset + 2], file[offset + 3]])
}

const SECTOR: usize = 512;
/// First byte of the setup header, in the file and in the zero page alike.
pub(super) const SETUP_SECTORS: usize = 0x1f1;
const BOOT_FLAG: usize = 0x1fe;
const JUMP: usize = 0x200;
const HEADER: usize = 0x202;
const VERSION: usize = 0x206;
const KERNEL_VERSION: usize = 0x20e;
const INITRD_ADDRESS_MAX: usize = 0x22c;
const COMMAND_LINE_SIZE: usize = 0x238;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
const INIT_SIZE: usize = 0x260;
/// Room for the header in the zero page.
const HEADER_ROOM: usize = 0x290;

/// Small bzImages for tests.
#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// A bzImage of one setup sector around `payload`.
    pub(in super::super) fn bzimage(payload: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 2 * SECTOR];
        file[SETUP_SECTORS] = 1;
        file[BOOT_FLAG..HEADER].copy_from_slice(&[0x55, 0xaa, 0xeb, 0x6a]);
        file[HEADER..HEADER + 4].copy_from_slice(b"HdrS");
        file[VERSION..VERSION + 2].copy_from_slice(&[15, 2]);
        file[KERNEL_VERSION..KERNEL_VERSION + 2].copy_from_slice(&0xc0_u16.to_le_bytes());
        file[INITRD_ADDRESS_MAX..INITRD_ADDRESS_MAX + 4].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
        file[COMMAND_LINE_SIZE..COMMAND_LINE_SIZE + 4].copy_from_slice(&2047_u32.to_le_bytes());
        file[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        file[SECTOR + 0xc0..SECTOR + 0xc0 + 5].copy_from_slice(b"6.12\0");
        file.extend(payload);
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_and_the_header_are_found() {
        let file = testing::bzimage(&zstd::encode_all(&b"vmlinux"[..], 1).unwrap());
        assert!(is_bzimage(&file));
        let (header, vmlinux) = read(&file).unwrap();
        assert_eq!(vmlinux, b"vmlinux");
        assert_eq!((header.command_line_limit, header.initrd_limit), (2047, 0x7fff_ffff));
        assert_eq!(header.version.as_deref(), Some("6.12"));
        assert_eq!(header.bytes.len(), 0x202 + 0x6a - SETUP_SECTORS);
    }

    #[test]
    fn truncated_and_ancient_images_are_refused() {
        let mut file = testing::bzimage(&zstd::encode_all(&b"vmlinux"[..], 1).unwrap());
        assert!(matches!(read(&file[..file.len() - 1]), Err(ImageError::Truncated { .. })));
        assert!(matches!(read(&file[..0x220]), Err(ImageError::Truncated { part: "the setup header", .. })));
        file[VERSION] = 3;
        assert!(matches!(read(&file), Err(ImageError::OldProtocol { major: 2, minor: 3 })));
    }
}
