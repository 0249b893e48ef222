//! Unpacking the compressed payload of a bzImage on the host, which takes milliseconds where the guest's own
//! decompressor would take seconds.

use std::io::{self, Read};

use super::ImageError;

/// Unpacks `payload`, whose format is told by its first bytes.
///
/// # Errors
/// When the format is not known or the data is damaged.
pub(super) fn unpack(payload: &[u8]) -> Result<Vec<u8>, ImageError> {
    let magic: [u8; 4] = payload.first_chunk().copied().ok_or(ImageError::Truncated {
        part: "the payload",
        end: 4,
        length: payload.len() as u64,
    })?;
    let (format, result) = match magic {
        [0x1f, 0x8b, ..] => ("gzip", read_all(flate2::read::GzDecoder::new(payload))),
        [0xfd, b'7', b'z', b'X'] => ("xz", read_all(liblzma::read::XzDecoder::new(payload))),
        [0x28, 0xb5, 0x2f, 0xfd] => ("zstd", unpack_zstd(payload)),
        [0x02, 0x21, 0x4c, 0x18] => ("lz4", unpack_lz4(&payload[4..])),
        [b'B', b'Z', b'h', _] => ("bzip2", read_all(bzip2::read::BzDecoder::new(payload))),
        [0x5d, 0, 0, _] => ("lzma", unpack_lzma(payload)),
        _ => return Err(ImageError::UnknownCompression { magic }),
    };
    result.map_err(|source| ImageError::Unpack { format, source })
}

/// The first frame only: the kernel build appends the unpacked size, which is no frame.
fn unpack_zstd(payload: &[u8]) -> io::Result<Vec<u8>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(payload)?.single_frame();
    // The kernel is packed with a window as large as itself.
    decoder.window_log_max(31)?;
    read_all(decoder)
}

fn unpack_lzma(payload: &[u8]) -> io::Result<Vec<u8>> {
    let stream = liblzma::stream::Stream::new_lzma_decoder(u64::MAX).map_err(io::Error::from)?;
    read_all(liblzma::read::XzDecoder::new_stream(payload, stream))
}

/// Legacy frames: blocks of at most 8 MiB, each behind its packed length. The last four bytes of the payload
/// are the unpacked size, added by the kernel build.
fn unpack_lz4(blocks: &[u8]) -> io::Result<Vec<u8>> {
    let mut rest = blocks.get(..blocks.len().saturating_sub(4)).unwrap_or_default();
    let mut unpacked = Vec::new();
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let block = tail.get(..length).ok_or(io::ErrorKind::UnexpectedEof)?;
        let start = unpacked.len();
        if start as u64 > MAX_UNPACKED {
            return Err(too_large());
        }
        unpacked.resize(start + LZ4_BLOCK, 0);
        let written = lz4_flex::block::decompress_into(block, &mut unpacked[start..])
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        unpacked.truncate(start + written);
        rest = &tail[length..];
    }
    Ok(unpacked)
}

fn read_all(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    reader.take(MAX_UNPACKED + 1).read_to_end(&mut unpacked)?;
    if unpacked.len() as u64 > MAX_UNPACKED { Err(too_large()) } else { Ok(unpacked) }
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it unpacks to more than 1 GiB")
}

/// No kernel is larger; a damaged or hostile file must not fill the host's memory.
const MAX_UNPACKED: u64 = 1 << 30;
const LZ4_BLOCK: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn sample() -> Vec<u8> {
        (0..100_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect()
    }

    fn with_size(mut packed: Vec<u8>) -> Vec<u8> {
        packed.extend((sample().len() as u32).to_le_bytes());
        packed
    }

    #[test]
    fn every_format_of_the_kernel_build_is_unpacked() {
        let data = sample();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&data).unwrap();
        assert_eq!(unpack(&gzip.finish().unwrap()).unwrap(), data);

        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(&data).unwrap();
        assert_eq!(unpack(&with_size(xz.finish().unwrap())).unwrap(), data);

        let options = liblzma::stream::LzmaOptions::new_preset(1).unwrap();
        let stream = liblzma::stream::Stream::new_lzma_encoder(&options).unwrap();
        let mut lzma = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
        lzma.write_all(&data).unwrap();
        assert_eq!(unpack(&with_size(lzma.finish().unwrap())).unwrap(), data);

        assert_eq!(unpack(&with_size(zstd::encode_all(&data[..], 1).unwrap())).unwrap(), data);

        let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        bzip2.write_all(&data).unwrap();
        assert_eq!(unpack(&with_size(bzip2.finish().unwrap())).unwrap(), data);

        let mut lz4 = vec![0x02, 0x21, 0x4c, 0x18];
        for block in data.chunks(150_000) {
            let packed = lz4_flex::block::compress(block);
            lz4.extend((packed.len() as u32).to_le_bytes());
            lz4.extend(packed);
        }
        assert_eq!(unpack(&with_size(lz4)).unwrap(), data);
    }

    #[test]
    fn damaged_and_unknown_payloads_are_named() {
        let mut packed = zstd::encode_all(&sample()[..], 1).unwrap();
        packed.truncate(packed.len() / 2);
        assert!(matches!(unpack(&packed), Err(ImageError::Unpack { format: "zstd", .. })));
        assert!(matches!(unpack(b"\x89LZO...."), Err(ImageError::UnknownCompression { .. })));
        assert!(matches!(unpack(b"\x02\x21\x4c\x18\xff\xff\xff\xff....."), Err(ImageError::Unpack { .. })));
        assert!(matches!(unpack(b"x"), Err(ImageError::Truncated { .. })));
    }
}
