//! An assembler for the few eBPF instructions that our programs need; jumps go forward, to labels.

/// A register. `R0` is what a program and a call return, `R1` to `R5` are a call's arguments, and a call leaves only `R6` to `R9`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reg {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R4 = 4,
    R5 = 5,
    R6 = 6,
}

/// Bytes of a load.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Size {
    U32 = 0x00,
    U16 = 0x08,
    U8 = 0x10,
}

/// When a jump is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) enum When {
    Equal = 0x10,
    NotEqual = 0x50,
}

/// A place to jump to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Label(usize);

const LDX_MEM: u8 = 0x61;
const ALU64: u8 = 0x07;
const JMP: u8 = 0x05;
/// The operand is a register and not a number.
const X: u8 = 0x08;
const ADD: u8 = 0x00;
const AND: u8 = 0x50;
const MOV: u8 = 0xb0;
const JA: u8 = 0x00;
const JGT: u8 = 0x20;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
const LD_IMM64: u8 = 0x18;
/// Marks the number of a [`LD_IMM64`] as the file descriptor of a map.
const PSEUDO_MAP_FD: u8 = 1;

/// An instruction as the kernel takes it, `struct bpf_insn`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instruction {
    op: u8,
    registers: u8,
    offset: i16,
    number: i32,
}

/// A program as far as it is written.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<Instruction>,
    /// Where each label stands, once it is placed.
    labels: Vec<Option<usize>>,
    /// Jumps, and the labels they go to.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn emit(&mut self, op: u8, dst: Reg, src: u8, offset: i16, number: i32) {
        let (dst, src) = if cfg!(target_endian = "little") { (dst as u8, src << 4) } else { ((dst as u8) << 4, src) };
        self.code.push(Instruction { op, registers: dst | src, offset, number });
    }

    /// A label that [`Assembler::place`] gives a place.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts a label here.
    pub(crate) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// `dst = *(from + offset)`.
    pub(crate) fn load(&mut self, size: Size, dst: Reg, from: Reg, offset: i16) {
        self.emit(LDX_MEM | size as u8, dst, from as u8, offset, 0);
    }

    /// `dst = src`.
    pub(crate) fn copy(&mut self, dst: Reg, src: Reg) {
        self.emit(ALU64 | X | MOV, dst, src as u8, 0, 0);
    }

    /// `dst = number`.
    pub(crate) fn set(&mut self, dst: Reg, number: i32) {
        self.emit(ALU64 | MOV, dst, 0, 0, number);
    }

    /// `dst += number`.
    pub(crate) fn add(&mut self, dst: Reg, number: i32) {
        self.emit(ALU64 | ADD, dst, 0, 0, number);
    }

    /// `dst &= number`.
    pub(crate) fn and(&mut self, dst: Reg, number: i32) {
        self.emit(ALU64 | AND, dst, 0, 0, number);
    }

    /// `dst = ` the map of that file descriptor.
    pub(crate) fn set_map(&mut self, dst: Reg, fd: i32) {
        self.emit(LD_IMM64, dst, PSEUDO_MAP_FD, 0, fd);
        self.emit(0, Reg::R0, 0, 0, 0);
    }

    /// Jumps.
    pub(crate) fn jump(&mut self, to: Label) {
        self.branch(JMP | JA, Reg::R0, 0, 0, to);
    }

    /// Jumps if `a` compares so with a number.
    pub(crate) fn jump_if(&mut self, when: When, a: Reg, number: i32, to: Label) {
        self.branch(JMP | when as u8, a, 0, number, to);
    }

    /// Jumps if `a > b`.
    pub(crate) fn jump_if_above(&mut self, a: Reg, b: Reg, to: Label) {
        self.branch(JMP | X | JGT, a, b as u8, 0, to);
    }

    fn branch(&mut self, op: u8, dst: Reg, src: u8, number: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.emit(op, dst, src, 0, number);
    }

    /// Calls a function of the kernel by its number.
    pub(crate) fn call(&mut self, function: i32) {
        self.emit(JMP | CALL, Reg::R0, 0, 0, function);
    }

    /// Ends the program.
    pub(crate) fn exit(&mut self) {
        self.emit(JMP | EXIT, Reg::R0, 0, 0, 0);
    }

    /// The program, its jumps filled in.
    ///
    /// # Panics
    /// When a label was never placed: a mistake in the program that is being written.
    pub(crate) fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let target = self.labels[label.0].expect("every label is placed");
            self.code[at].offset = (target - at - 1) as i16;
        }
        self.code
    }
}
