//! The internet checksum and the segmentation engine beside `memcpy` of the same bytes: compare the throughputs
//! of a group to get the ratio.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use nicvisor_net::checksum::Sum;
use nicvisor_net::parse::IpVersion;
use nicvisor_net::testing::Packet;
use nicvisor_net::tso::{LsoRequest, segment};

fn checksum(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checksum");
    for length in [1448, 65_536, 524_288] {
        let bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
        let mut copy = vec![0u8; length];
        group.throughput(Throughput::Bytes(length as u64));
        group.bench_function(BenchmarkId::new("memcpy", length), |bencher| {
            bencher.iter(|| black_box(&mut copy).copy_from_slice(black_box(&bytes)));
        });
        group.bench_function(BenchmarkId::new("sum", length), |bencher| {
            bencher.iter(|| Sum::of(black_box(&bytes)));
        });
    }
    group.finish();
}

fn segmentation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("segmentation");
    for mss in [1448, 8948] {
        let packet = Packet::new(IpVersion::V6, 262_000);
        let (bytes, request) = (packet.build(), LsoRequest::tcp(packet.header_len(), mss));
        let mut copy = vec![0u8; bytes.len()];
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(BenchmarkId::new("memcpy", mss), |bencher| {
            bencher.iter(|| black_box(&mut copy).copy_from_slice(black_box(&bytes)));
        });
        group.bench_function(BenchmarkId::new("segment", mss), |bencher| {
            bencher.iter(|| segment(black_box(&bytes), &request).map(|frames| frames.map(black_box).count()));
        });
    }
    group.finish();
}

criterion_group!(benches, checksum, segmentation);
criterion_main!(benches);
