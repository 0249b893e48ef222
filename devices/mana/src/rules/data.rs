//! Rules about queues, their entries and doorbells.

rules! {}
