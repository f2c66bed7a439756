//! What keeps the repository readable: files and functions of a size that can be read, imports that go one way, and no
//! architecture by name where all are served alike.

mod additions;
mod circles;
mod excuses;
mod names;
mod places;
mod sentences;
mod sizes;
mod sources;
