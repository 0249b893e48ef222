//! The pair of 8259 interrupt controllers. Linux probes and masks them; before that, and in test programs,
//! they carry the timer's interrupt.

use serde::{Deserialize, Serialize};

/// Master and slave, the slave at the master's input 2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PicPair {
    master: Pic,
    slave: Pic,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Pic {
    requested: u8,
    in_service: u8,
    mask: u8,
    levels: u8,
    level_triggered: u8,
    base: u8,
    /// The input after the one of lowest priority.
    first: u8,
    setup: Setup,
    needs_mode_word: bool,
    single: bool,
    automatic: bool,
    rotates: bool,
    reads_in_service: bool,
    special_mask: bool,
    polled: bool,
}

/// Which initialisation word comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Setup {
    #[default]
    Done,
    Base,
    Cascade,
    Mode,
}

impl PicPair {
    /// Power-on state.
    pub fn new() -> PicPair {
        PicPair::default()
    }

    /// Input `irq` (0 to 15) changes to `level`.
    pub fn set_level(&mut self, irq: u32, level: bool) {
        match irq {
            0..=7 => self.master.set_level(irq as u8, level),
            8..=15 => self.slave.set_level(irq as u8 - 8, level),
            _ => {}
        }
        self.cascade();
    }

    /// The level of the output to the CPU.
    pub fn output(&self) -> bool {
        self.master.highest().is_some()
    }

    /// The CPU acknowledges: the vector. Without a request it is that of the lowest input, as on hardware.
    pub fn acknowledge(&mut self) -> u8 {
        let Some(input) = self.master.highest() else { return self.master.base + SPURIOUS_INPUT };
        self.master.acknowledge(input);
        let vector = if input == CASCADE {
            let input = self.slave.highest();
            input.inspect(|&input| self.slave.acknowledge(input));
            self.slave.base + input.unwrap_or(SPURIOUS_INPUT)
        } else {
            self.master.base + input
        };
        self.cascade();
        vector
    }

    /// Reads one of the ports 0x20, 0x21, 0xa0, 0xa1, 0x4d0, 0x4d1.
    pub fn read(&mut self, port: u16) -> u8 {
        let value = match port {
            0x20 | 0x21 => self.master.read(port & 1 != 0),
            0xa0 | 0xa1 => self.slave.read(port & 1 != 0),
            0x4d0 => self.master.level_triggered,
            0x4d1 => self.slave.level_triggered,
            _ => 0xff,
        };
        self.cascade();
        value
    }

    /// Writes one of those ports.
    pub fn write(&mut self, port: u16, value: u8) {
        match port {
            0x20 | 0x21 => self.master.write(port & 1 != 0, value),
            0xa0 | 0xa1 => self.slave.write(port & 1 != 0, value),
            // Timer, keyboard, cascade, clock and coprocessor cannot be level-triggered.
            0x4d0 => self.master.level_triggered = value & 0xf8,
            0x4d1 => self.slave.level_triggered = value & 0xde,
            _ => {}
        }
        self.cascade();
    }

    fn cascade(&mut self) {
        self.master.set_level(CASCADE, self.slave.highest().is_some());
    }
}

impl Pic {
    fn set_level(&mut self, input: u8, level: bool) {
        let bit = 1 << input;
        let rises = level && self.levels & bit == 0;
        self.levels = self.levels & !bit | if level { bit } else { 0 };
        // The slave's request at the cascade input must come and go with its output.
        if self.level_triggered & bit != 0 || (input == CASCADE && !level) {
            self.requested = self.requested & !bit | self.levels & bit;
        } else if rises {
            self.requested |= bit;
        }
    }

    /// The request that would be acknowledged now.
    fn highest(&self) -> Option<u8> {
        let candidates = self.requested & !self.mask;
        for step in 0..8 {
            let input = (self.first + step) & 7;
            let bit = 1 << input;
            if candidates & bit != 0 && self.in_service & bit == 0 {
                return Some(input);
            }
            let blocks = self.in_service & bit != 0;
            let passes = self.special_mask && self.mask & bit != 0;
            if blocks && !passes {
                return None;
            }
        }
        None
    }

    fn acknowledge(&mut self, input: u8) {
        let bit = 1 << input;
        if self.level_triggered & bit == 0 {
            self.requested &= !bit;
        }
        if !self.automatic {
            self.in_service |= bit;
        } else if self.rotates {
            self.first = (input + 1) & 7;
        }
    }

    fn read(&mut self, data: bool) -> u8 {
        if std::mem::take(&mut self.polled) {
            return match self.highest() {
                Some(input) => {
                    self.acknowledge(input);
                    0x80 | input
                }
                None => 0,
            };
        }
        match (data, self.reads_in_service) {
            (true, _) => self.mask,
            (false, true) => self.in_service,
            (false, false) => self.requested,
        }
    }

    fn write(&mut self, data: bool, value: u8) {
        match (data, self.setup) {
            (false, _) if value & 0x10 != 0 => self.start_setup(value),
            (false, _) if value & 0x08 != 0 => self.select(value),
            (false, _) => self.end_of_interrupt(value),
            (true, Setup::Done) => self.mask = value,
            (true, step) => self.continue_setup(step, value),
        }
    }

    fn start_setup(&mut self, value: u8) {
        *self = Pic {
            levels: self.levels,
            level_triggered: self.level_triggered,
            setup: Setup::Base,
            needs_mode_word: value & 1 != 0,
            single: value & 2 != 0,
            ..Pic::default()
        };
    }

    fn continue_setup(&mut self, step: Setup, value: u8) {
        let last = if self.needs_mode_word { Setup::Mode } else { Setup::Done };
        self.setup = match step {
            Setup::Base => {
                self.base = value & 0xf8;
                if self.single { last } else { Setup::Cascade }
            }
            Setup::Cascade => last,
            Setup::Mode | Setup::Done => {
                self.automatic = value & 2 != 0;
                Setup::Done
            }
        };
    }

    /// Operation command word 3: what a read returns, special mask mode, polling.
    fn select(&mut self, value: u8) {
        self.polled = value & 4 != 0;
        if value & 2 != 0 {
            self.reads_in_service = value & 1 != 0;
        }
        if value & 0x40 != 0 {
            self.special_mask = value & 0x20 != 0;
        }
    }

    /// Operation command word 2: end of interrupt and priority rotation.
    fn end_of_interrupt(&mut self, value: u8) {
        let named = value & 7;
        let highest =
            (0..8).map(|step| (self.first + step) & 7).find(|input| self.in_service >> input & 1 != 0);
        match value >> 5 {
            0b000 => self.rotates = false,
            0b100 => self.rotates = true,
            0b001 | 0b101 => {
                if let Some(input) = highest {
                    self.in_service &= !(1 << input);
                    if value >> 5 == 0b101 {
                        self.first = (input + 1) & 7;
                    }
                }
            }
            0b011 => self.in_service &= !(1 << named),
            0b111 => {
                self.in_service &= !(1 << named);
                self.first = (named + 1) & 7;
            }
            0b110 => self.first = (named + 1) & 7,
            _ => {}
        }
    }
}

/// The master's input that the slave drives.
const CASCADE: u8 = 2;
/// The input whose vector stands for "nothing was there".
const SPURIOUS_INPUT: u8 = 7;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn initialised() -> PicPair {
        let mut pair = PicPair::new();
        for (base, vector, cascade) in [(0x20, 0x30, 4), (0xa0, 0x38, 2)] {
            pair.write(base, 0x11);
            pair.write(base + 1, vector);
            pair.write(base + 1, cascade);
            pair.write(base + 1, 0x01);
        }
        pair
    }

    #[test]
    fn linux_finds_the_pair() {
        let mut pair = PicPair::new();
        pair.write(0xa1, 0xff);
        pair.write(0x21, 0xfb);
        assert_eq!(pair.read(0x21), 0xfb);
    }

    #[test]
    fn the_timer_comes_before_the_clock_and_both_come_once() {
        let mut pair = initialised();
        for irq in [8, 0] {
            pair.set_level(irq, true);
            pair.set_level(irq, false);
        }
        assert!(pair.output());
        assert_eq!(pair.acknowledge(), 0x30);
        assert!(!pair.output(), "the cascade waits behind input 0");
        pair.write(0x20, 0x20);
        assert!(pair.output());
        assert_eq!(pair.acknowledge(), 0x38);
        pair.write(0xa0, 0x20);
        pair.write(0x20, 0x20);
        assert!(!pair.output());
        assert_eq!(pair.acknowledge(), 0x37, "spurious");
    }

    #[test]
    fn a_masked_request_waits() {
        let mut pair = initialised();
        pair.write(0x21, 0xff);
        pair.set_level(4, true);
        assert!(!pair.output());
        pair.write(0x21, 0xef);
        assert_eq!(pair.acknowledge(), 0x34);
    }

    #[test]
    fn a_level_triggered_input_asks_again_until_it_is_low() {
        let mut pair = initialised();
        pair.write(0x4d1, 0x02);
        pair.set_level(9, true);
        assert_eq!(pair.acknowledge(), 0x39);
        pair.write(0xa0, 0x20);
        pair.write(0x20, 0x20);
        assert!(pair.output());
        pair.set_level(9, false);
        assert!(!pair.output());
    }

    proptest! {
        #[test]
        fn nothing_panics(operations in prop::collection::vec((0_u8..4, any::<u8>(), any::<u8>()), 0..200)) {
            let ports = [0x20, 0x21, 0xa0, 0xa1, 0x4d0, 0x4d1, 0x22];
            let mut pair = PicPair::new();
            for (operation, place, value) in operations {
                let port = ports[usize::from(place) % ports.len()];
                match operation {
                    0 => pair.write(port, value),
                    1 => { pair.read(port); }
                    2 => pair.set_level(u32::from(place), value & 1 != 0),
                    _ => { pair.acknowledge(); }
                }
            }
        }
    }
}
