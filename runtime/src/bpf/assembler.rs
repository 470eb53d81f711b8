//! An assembler for the few eBPF instructions that our programs need; jumps go to labels.

/// A register. `R0` is what a program and a call return, `R1` to `R5` are a call's arguments, and a call leaves only `R6` to `R9`. `R10` is the
/// end of the stack, which lies below it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reg {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R4 = 4,
    R5 = 5,
    R6 = 6,
    R7 = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
}

/// Bytes of a load or store.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Size {
    U32 = 0x00,
    U16 = 0x08,
    U8 = 0x10,
    U64 = 0x18,
}

/// When a jump is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) enum When {
    Equal = 0x10,
    NotEqual = 0x50,
    /// Some of the number's bits are set.
    AnySet = 0x40,
}

/// A place to jump to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Label(usize);

const LDX_MEM: u8 = 0x61;
const STX_MEM: u8 = 0x63;
const ST_MEM: u8 = 0x62;
/// Adds to memory, eight bytes, as one step for all cores.
const ATOMIC_ADD_U64: u8 = 0xdb;
/// From the order of bytes in packets to the machine's, or back.
const BIG_ENDIAN: u8 = 0xdc;
const ALU64: u8 = 0x07;
const JMP: u8 = 0x05;
/// The operand is a register and not a number.
const X: u8 = 0x08;
const ADD: u8 = 0x00;
const MUL: u8 = 0x20;
const AND: u8 = 0x50;
const SHIFT_RIGHT: u8 = 0x70;
const MOV: u8 = 0xb0;
const JA: u8 = 0x00;
const JGT: u8 = 0x20;
const JGE: u8 = 0x30;
const JNE: u8 = 0x50;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
const LD_IMM64: u8 = 0x18;
/// Marks the number of a [`LD_IMM64`] as the file descriptor of a map.
const PSEUDO_MAP_FD: u8 = 1;
/// Marks it as the file descriptor of an array of one element, and the number behind it as an offset in that.
const PSEUDO_MAP_VALUE: u8 = 2;

/// Marks it as the distance to a function of the program's own.
const PSEUDO_FUNC: u8 = 4;

/// An instruction as the kernel takes it, `struct bpf_insn`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Instruction {
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
    /// Where addresses of functions are, and the labels the functions begin with.
    addresses: Vec<(usize, Label)>,
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

    /// `*(to + offset) = src`.
    pub(crate) fn store(&mut self, size: Size, to: Reg, offset: i16, src: Reg) {
        self.emit(STX_MEM | size as u8, to, src as u8, offset, 0);
    }

    /// `*(to + offset) = number`.
    pub(crate) fn store_number(&mut self, size: Size, to: Reg, offset: i16, number: i32) {
        self.emit(ST_MEM | size as u8, to, 0, offset, number);
    }

    /// `*(to + offset) += src`, eight bytes, atomically.
    pub(crate) fn atomic_add(&mut self, to: Reg, offset: i16, src: Reg) {
        self.emit(ATOMIC_ADD_U64, to, src as u8, offset, 0);
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

    /// `dst += src`.
    pub(crate) fn add_register(&mut self, dst: Reg, src: Reg) {
        self.emit(ALU64 | X | ADD, dst, src as u8, 0, 0);
    }

    /// `dst *= src`.
    pub(crate) fn multiply(&mut self, dst: Reg, src: Reg) {
        self.emit(ALU64 | X | MUL, dst, src as u8, 0, 0);
    }

    /// `dst >>= bits`, without a sign.
    pub(crate) fn shift_right(&mut self, dst: Reg, bits: i32) {
        self.emit(ALU64 | SHIFT_RIGHT, dst, 0, 0, bits);
    }

    /// The lower 32 bits of `dst`, which came from a packet, as a number.
    pub(crate) fn number_of_u32(&mut self, dst: Reg) {
        self.emit(BIG_ENDIAN, dst, 0, 0, 32);
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

    /// `dst = ` the address of the only element of the array of that file descriptor.
    pub(crate) fn set_map_value(&mut self, dst: Reg, fd: i32) {
        self.emit(LD_IMM64, dst, PSEUDO_MAP_VALUE, 0, fd);
        self.emit(0, Reg::R0, 0, 0, 0);
    }

    /// `dst = ` the address of a function of the program's own, for the kernel to call. It stands behind the program's end.
    pub(crate) fn set_function(&mut self, dst: Reg, function: Label) {
        self.addresses.push((self.code.len(), function));
        self.emit(LD_IMM64, dst, PSEUDO_FUNC, 0, 0);
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

    /// Jumps if `a >= b`.
    pub(crate) fn jump_if_at_least(&mut self, a: Reg, b: Reg, to: Label) {
        self.branch(JMP | X | JGE, a, b as u8, 0, to);
    }

    /// Jumps if `a != b`.
    pub(crate) fn jump_unless_same(&mut self, a: Reg, b: Reg, to: Label) {
        self.branch(JMP | X | JNE, a, b as u8, 0, to);
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
    pub(crate) fn finish(mut self) -> Code {
        let distance = |at: usize, label: Label| {
            let target = self.labels[label.0].expect("every label is placed");
            target as isize - at as isize - 1
        };
        for &(at, label) in &self.jumps {
            self.code[at].offset = distance(at, label) as i16;
        }
        for &(at, label) in &self.addresses {
            self.code[at].number = distance(at, label) as i32;
        }
        let mut functions: Vec<u32> =
            self.addresses.iter().filter_map(|&(_, label)| self.labels[label.0]).map(|at| at as u32).collect();
        functions.sort_unstable();
        functions.dedup();
        Code { instructions: self.code, functions }
    }
}

/// A program that is written.
#[derive(Debug)]
pub(crate) struct Code {
    pub(super) instructions: Vec<Instruction>,
    /// Where its functions begin, besides the program itself.
    pub(super) functions: Vec<u32>,
}
