//! Sending and receiving through the device, from doorbell to completion, beside `memcpy` of the same bytes:
//! compare the throughputs of a group to get the ratio.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use nicvisor_mana::Config;
use nicvisor_mana::testing::{Driver, Send, Setup};
use nicvisor_net::parse::IpVersion;
use nicvisor_net::testing::{Packet, seed};

fn memcpy(group: &mut criterion::BenchmarkGroup<'_, criterion::measurement::WallTime>, bytes: &[u8]) {
    let mut copy = vec![0_u8; bytes.len()];
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("memcpy", |bencher| {
        bencher.iter(|| black_box(&mut copy).copy_from_slice(black_box(bytes)));
    });
}

fn open(mac: [u8; 6], mtu: u16) -> Driver {
    let config = Config { mac, mtu, ..Config::default() };
    let mut driver = Driver::new(config).expect("a possible device");
    let setup = Setup { queues: 1, buffers: 256, buffer_size: 9216, ..Setup::default() };
    driver.open(setup);
    driver
}

fn transmit(criterion: &mut Criterion) {
    for mtu in [1500, 9000_u16] {
        let mut group = criterion.benchmark_group(format!("transmit-512k-mtu-{mtu}"));
        let header_len = Packet::new(IpVersion::V6, 0).header_len();
        let packet = Packet::new(IpVersion::V6, 8 * 65_535 - header_len);
        let mut bytes = packet.build();
        seed(&mut bytes, true);
        memcpy(&mut group, &bytes);
        let mut driver = open([2, 0, 0, 0, 0, 1], mtu);
        let entry = driver.entry(0, 0, &Send::lso(&bytes, header_len, mtu - 60));
        group.bench_function("segment", |bencher| {
            bencher.iter(|| {
                driver.post_send(0, 0, &entry, false);
                assert_eq!(driver.completed(0, 0).len(), 1);
                black_box(driver.effects());
            });
        });
        group.finish();
    }
}

fn receive(criterion: &mut Criterion) {
    for mtu in [1500, 9000_u16] {
        let mut group = criterion.benchmark_group(format!("receive-mtu-{mtu}"));
        let packet = Packet::new(IpVersion::V6, usize::from(mtu) - 60).build();
        memcpy(&mut group, &packet);
        let mut driver = open([2, 0, 0, 0, 0, 2], mtu);
        let mut id = 0;
        group.bench_function("deliver", |bencher| {
            bencher.iter(|| {
                id += 1;
                driver.harness.arrive(0, id, packet.clone());
                assert_eq!(driver.received(0, 0).len(), 1);
                driver.post(0, 0);
                black_box(driver.effects());
            });
        });
        group.finish();
    }
}

criterion_group!(benches, transmit, receive);
criterion_main!(benches);
