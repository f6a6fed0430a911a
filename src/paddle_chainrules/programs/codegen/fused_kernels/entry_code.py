"""The machine code of :mod:`.entries`: one function, which reads a table.

It is a builtin function of CPython (``METH_FASTCALL``), whose ``self`` is a bytes
object that holds the table. It reads its arguments, and makes its results, through the
DLPack exchange table of ``paddle.Tensor``. If anything does not fit, it returns None
and has done nothing, and the caller goes on in Python.

The table has 64-bit integers. First come these, in this order:

- ``INPUTS``, ``OUTPUTS``: their numbers.
- ``OF``, ``AXIS``, ``PART``: the input and axis whose size, divided by the part, is the
  number of samples. ``OF`` is -1 where no size depends on it.
- ``REGION``, ``FLAG``: addresses of the region and of its flag.
- ``LEAVES``: whether the region may end early.
- ``MOST``: the most bytes of a result, and of memory for intermediate ones.
- ``WORK``, ``WORK_EACH``: the bytes of that memory, and those for each sample.
- ``READ``, ``WRAP``: addresses of functions of the exchange table.
- ``TYPE``, ``HELD``, ``DENSE``: ``paddle.Tensor``, where its instances hold their
  memory's description, and the first word of a description that ``READ`` can read. It
  looks at none of this itself.

Then comes a row for each input and each output: the dtype as the 32 bits of a
``DLDataType``, the number of axes, and for each axis a factor and a power (0 or 1): its
size is the factor times the number of samples to that power.

Each result has memory of its own, so that it keeps no other alive: the
``DLManagedTensorVersioned``, shape and strides, and then the elements.
"""

FIELDS = (
    *("INPUTS", "OUTPUTS", "OF", "AXIS", "PART", "REGION", "FLAG", "LEAVES"),
    *("MOST", "WORK", "WORK_EACH", "READ", "WRAP", "TYPE", "HELD", "DENSE"),
)

CPYTHON = (
    *("PyBytes_AsString", "PyErr_Clear", "PyList_New", "PyList_SetItem"),
    *("Py_IncRef", "Py_DecRef", "PyType_IsSubtype", "_Py_NoneStruct"),
)
"""Names of CPython's stable interface that the code uses."""

LIBC = ("aligned_alloc", "free")

NAME = "enter_region"

TEXT = """
@_Py_NoneStruct = external global i8
declare ptr @PyBytes_AsString(ptr)
declare void @PyErr_Clear()
declare ptr @PyList_New(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare i32 @PyType_IsSubtype(ptr, ptr)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)

; The size of an axis.
define internal i64 @size(ptr %axis, i64 %samples) alwaysinline {
  %factor = load i64, ptr %axis
  %at = getelementptr i64, ptr %axis, i64 1
  %power = load i64, ptr %at
  %varies = icmp ne i64 %power, 0
  %times = select i1 %varies, i64 %samples, i64 1
  %size = mul i64 %factor, %times
  ret i64 %size
}

; The bytes of an element.
define internal i64 @width(ptr %row) alwaysinline {
  %dtype = load i64, ptr %row
  %shifted = lshr i64 %dtype, 8
  %bits = and i64 %shifted, 255
  %bytes = lshr i64 %bits, 3
  ret i64 %bytes
}

; The row after this one.
define internal ptr @after(ptr %row) alwaysinline {
  %at = getelementptr i64, ptr %row, i64 1
  %axes = load i64, ptr %at
  %two = shl i64 %axes, 1
  %step = add i64 %two, 2
  %next = getelementptr i64, ptr %row, i64 %step
  ret ptr %next
}

; Whether an object is a dense tensor that has a shape, so that it can be read.
define internal i1 @readable(ptr %object, ptr %table) alwaysinline {
begin:
  %type.at = getelementptr i8, ptr %object, i64 8
  %type = load ptr, ptr %type.at
  %tensor.at = getelementptr i64, ptr %table, i64 13
  %tensor = load ptr, ptr %tensor.at
  %is.tensor = icmp eq ptr %type, %tensor
  br i1 %is.tensor, label %hold, label %derive
derive:
  %derives = call i32 @PyType_IsSubtype(ptr %type, ptr %tensor)
  %is.derived = icmp ne i32 %derives, 0
  br i1 %is.derived, label %hold, label %no
hold:
  %place.at = getelementptr i64, ptr %table, i64 14
  %place = load i64, ptr %place.at
  %held.at = getelementptr i8, ptr %object, i64 %place
  %held = load ptr, ptr %held.at
  %is.undefined = icmp eq ptr %held, null
  br i1 %is.undefined, label %no, label %look
look:
  %first = load i64, ptr %held
  %dense.at = getelementptr i64, ptr %table, i64 15
  %dense = load i64, ptr %dense.at
  %is.dense = icmp eq i64 %first, %dense
  ret i1 %is.dense
no:
  ret i1 false
}

; Whether a tensor lies on the CPU, and has a row's dtype, shape and no gaps.
define internal i1 @fits(ptr %tensor, ptr %row, i64 %samples) {
  %device.at = getelementptr i8, ptr %tensor, i64 8
  %device = load i32, ptr %device.at
  %on.cpu = icmp eq i32 %device, 1
  %dtype.at = getelementptr i8, ptr %tensor, i64 20
  %dtype.own = load i32, ptr %dtype.at
  %dtype.row = load i64, ptr %row
  %dtype.short = trunc i64 %dtype.row to i32
  %same.dtype = icmp eq i32 %dtype.own, %dtype.short
  %axes.at = getelementptr i8, ptr %tensor, i64 16
  %axes.own = load i32, ptr %axes.at
  %axes.long = sext i32 %axes.own to i64
  %axes.row.at = getelementptr i64, ptr %row, i64 1
  %axes = load i64, ptr %axes.row.at
  %same.axes = icmp eq i64 %axes.long, %axes
  %one = and i1 %on.cpu, %same.dtype
  %all = and i1 %one, %same.axes
  br i1 %all, label %begin, label %no
begin:
  %shape.at = getelementptr i8, ptr %tensor, i64 24
  %shape = load ptr, ptr %shape.at
  %strides.at = getelementptr i8, ptr %tensor, i64 32
  %strides = load ptr, ptr %strides.at
  %first = getelementptr i64, ptr %row, i64 2
  br label %next
next:
  %left = phi i64 [ %axes, %begin ], [ %k, %go ]
  %stride = phi i64 [ 1, %begin ], [ %bigger, %go ]
  %done = icmp eq i64 %left, 0
  br i1 %done, label %yes, label %axis
axis:
  %k = sub i64 %left, 1
  %twice = shl i64 %k, 1
  %axis.at = getelementptr i64, ptr %first, i64 %twice
  %size = call i64 @size(ptr %axis.at, i64 %samples)
  %size.at = getelementptr i64, ptr %shape, i64 %k
  %size.own = load i64, ptr %size.at
  %same.size = icmp eq i64 %size, %size.own
  br i1 %same.size, label %gaps, label %no
gaps:
  %none = icmp eq ptr %strides, null
  %alone = icmp eq i64 %size, 1
  %free = or i1 %none, %alone
  br i1 %free, label %go, label %look
look:
  %stride.at = getelementptr i64, ptr %strides, i64 %k
  %stride.own = load i64, ptr %stride.at
  %same.stride = icmp eq i64 %stride, %stride.own
  br i1 %same.stride, label %go, label %no
go:
  %bigger = mul i64 %stride, %size
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; The number of a row's elements.
define internal i64 @elements(ptr %row, i64 %samples) {
begin:
  %axes.at = getelementptr i64, ptr %row, i64 1
  %axes = load i64, ptr %axes.at
  %first = getelementptr i64, ptr %row, i64 2
  br label %next
next:
  %k = phi i64 [ 0, %begin ], [ %after, %go ]
  %count = phi i64 [ 1, %begin ], [ %more, %go ]
  %done = icmp eq i64 %k, %axes
  br i1 %done, label %end, label %go
go:
  %twice = shl i64 %k, 1
  %axis = getelementptr i64, ptr %first, i64 %twice
  %size = call i64 @size(ptr %axis, i64 %samples)
  %more = mul i64 %count, %size
  %after = add i64 %k, 1
  br label %next
end:
  ret i64 %count
}

; The bytes of a result's elements, in whole lines of the cache.
define internal i64 @room(ptr %row, i64 %samples) {
  %count = call i64 @elements(ptr %row, i64 %samples)
  %width = call i64 @width(ptr %row)
  %bytes = mul i64 %count, %width
  %over = add i64 %bytes, 63
  %room = and i64 %over, -64
  ret i64 %room
}

; The bytes before a result's elements, in whole lines of the cache.
define internal i64 @head(ptr %row) alwaysinline {
  %axes.at = getelementptr i64, ptr %row, i64 1
  %axes = load i64, ptr %axes.at
  %sizes = shl i64 %axes, 4
  %over = add i64 %sizes, 143
  %bytes = and i64 %over, -64
  ret i64 %bytes
}

; Describe a result, in the memory before its elements.
define internal void @describe(ptr %head, ptr %row, ptr %data, i64 %samples) {
begin:
  store i32 1, ptr %head
  %minor.at = getelementptr i8, ptr %head, i64 4
  store i32 0, ptr %minor.at
  %context.at = getelementptr i8, ptr %head, i64 8
  store ptr %head, ptr %context.at ; without one Paddle calls no deleter
  %deleter.at = getelementptr i8, ptr %head, i64 16
  store ptr @drop, ptr %deleter.at
  %flags.at = getelementptr i8, ptr %head, i64 24
  store i64 0, ptr %flags.at
  %data.at = getelementptr i8, ptr %head, i64 32
  store ptr %data, ptr %data.at
  %device.at = getelementptr i8, ptr %head, i64 40
  store i32 1, ptr %device.at
  %number.at = getelementptr i8, ptr %head, i64 44
  store i32 0, ptr %number.at
  %axes.row.at = getelementptr i64, ptr %row, i64 1
  %axes = load i64, ptr %axes.row.at
  %axes.short = trunc i64 %axes to i32
  %axes.at = getelementptr i8, ptr %head, i64 48
  store i32 %axes.short, ptr %axes.at
  %dtype.long = load i64, ptr %row
  %dtype = trunc i64 %dtype.long to i32
  %dtype.at = getelementptr i8, ptr %head, i64 52
  store i32 %dtype, ptr %dtype.at
  %shape = getelementptr i8, ptr %head, i64 80
  %strides = getelementptr i64, ptr %shape, i64 %axes
  %shape.at = getelementptr i8, ptr %head, i64 56
  store ptr %shape, ptr %shape.at
  %strides.at = getelementptr i8, ptr %head, i64 64
  store ptr %strides, ptr %strides.at
  %offset.at = getelementptr i8, ptr %head, i64 72
  store i64 0, ptr %offset.at
  %first = getelementptr i64, ptr %row, i64 2
  br label %next
next:
  %left = phi i64 [ %axes, %begin ], [ %k, %axis ]
  %stride = phi i64 [ 1, %begin ], [ %bigger, %axis ]
  %done = icmp eq i64 %left, 0
  br i1 %done, label %end, label %axis
axis:
  %k = sub i64 %left, 1
  %twice = shl i64 %k, 1
  %axis.at = getelementptr i64, ptr %first, i64 %twice
  %size = call i64 @size(ptr %axis.at, i64 %samples)
  %size.at = getelementptr i64, ptr %shape, i64 %k
  store i64 %size, ptr %size.at
  %stride.at = getelementptr i64, ptr %strides, i64 %k
  store i64 %stride, ptr %stride.at
  %bigger = mul i64 %stride, %size
  br label %next
end:
  ret void
}

; The deleter of a result, on whatever thread.
define internal void @drop(ptr %managed) {
  call void @free(ptr %managed)
  ret void
}

; Free the results from one on up to another.
define internal void @free.from(ptr %results, i64 %first, i64 %end) noinline {
begin:
  br label %next
next:
  %k = phi i64 [ %first, %begin ], [ %after, %one ]
  %done = icmp uge i64 %k, %end
  br i1 %done, label %finish, label %one
one:
  %at = getelementptr ptr, ptr %results, i64 %k
  %memory = load ptr, ptr %at
  call void @free(ptr %memory)
  %after = add i64 %k, 1
  br label %next
finish:
  ret void
}

define ptr @NAME(ptr %self, ptr %arguments, i64 %given) {
begin:
  %table = call ptr @PyBytes_AsString(ptr %self)
  %inputs = load i64, ptr %table
  %outputs.at = getelementptr i64, ptr %table, i64 1
  %outputs = load i64, ptr %outputs.at
  %rows = getelementptr i64, ptr %table, i64 16
  %read.at = getelementptr i64, ptr %table, i64 11
  %read = load ptr, ptr %read.at
  %wrap.at = getelementptr i64, ptr %table, i64 12
  %wrap = load ptr, ptr %wrap.at
  %right.number = icmp eq i64 %given, %inputs
  br i1 %right.number, label %make.room, label %refuse
make.room:
  %tensors.bytes = mul i64 %inputs, 48
  %tensors = alloca i8, i64 %tensors.bytes, align 8
  %tensor.count = add i64 %inputs, %outputs
  %block.count = add i64 %tensor.count, 3
  %block = alloca i64, i64 %block.count, align 8
  %results = alloca ptr, i64 %outputs, align 8
  %object.place = alloca ptr, align 8
  br label %read.next
read.next:
  %i = phi i64 [ 0, %make.room ], [ %i.after, %read.done ]
  %read.all = icmp eq i64 %i, %inputs
  br i1 %read.all, label %count, label %read.one
read.one:
  %argument.at = getelementptr ptr, ptr %arguments, i64 %i
  %argument = load ptr, ptr %argument.at
  %is.readable = call i1 @readable(ptr %argument, ptr %table)
  br i1 %is.readable, label %read.facts, label %refuse
read.facts:
  %i.bytes = mul i64 %i, 48
  %tensor = getelementptr i8, ptr %tensors, i64 %i.bytes
  %failed = call i32 %read(ptr %argument, ptr %tensor)
  %is.read = icmp eq i32 %failed, 0
  br i1 %is.read, label %read.done, label %clear
read.done:
  %i.after = add i64 %i, 1
  br label %read.next
clear:
  call void @PyErr_Clear()
  br label %refuse

count:
  %of.at = getelementptr i64, ptr %table, i64 2
  %of = load i64, ptr %of.at
  %fixed = icmp slt i64 %of, 0
  br i1 %fixed, label %check, label %count.axes
count.axes:
  %of.bytes = mul i64 %of, 48
  %counted = getelementptr i8, ptr %tensors, i64 %of.bytes
  %axis.at = getelementptr i64, ptr %table, i64 3
  %axis = load i64, ptr %axis.at
  %axes.at = getelementptr i8, ptr %counted, i64 16
  %axes.short = load i32, ptr %axes.at
  %axes = sext i32 %axes.short to i64
  %has.axis = icmp slt i64 %axis, %axes
  br i1 %has.axis, label %count.size, label %refuse
count.size:
  %part.at = getelementptr i64, ptr %table, i64 4
  %part = load i64, ptr %part.at
  %shape.at = getelementptr i8, ptr %counted, i64 24
  %shape = load ptr, ptr %shape.at
  %size.at = getelementptr i64, ptr %shape, i64 %axis
  %size = load i64, ptr %size.at
  %found = udiv i64 %size, %part
  br label %check

check:
  %samples = phi i64 [ 0, %count ], [ %found, %count.size ]
  store i64 %samples, ptr %block
  %flag.at = getelementptr i64, ptr %table, i64 6
  %flag = load i64, ptr %flag.at
  %block.flag = getelementptr i64, ptr %block, i64 1
  store i64 %flag, ptr %block.flag
  %places = getelementptr i64, ptr %block, i64 2
  br label %check.next
check.next:
  %c = phi i64 [ 0, %check ], [ %c.after, %check.address ]
  %row = phi ptr [ %rows, %check ], [ %row.after, %check.address ]
  %checked = icmp eq i64 %c, %inputs
  br i1 %checked, label %measure, label %check.one
check.one:
  %c.bytes = mul i64 %c, 48
  %own = getelementptr i8, ptr %tensors, i64 %c.bytes
  %fitting = call i1 @fits(ptr %own, ptr %row, i64 %samples)
  br i1 %fitting, label %check.address, label %refuse
check.address:
  %data = load i64, ptr %own
  %offset.at = getelementptr i8, ptr %own, i64 40
  %offset = load i64, ptr %offset.at
  %address = add i64 %data, %offset
  %place = getelementptr i64, ptr %places, i64 %c
  store i64 %address, ptr %place
  %row.after = call ptr @after(ptr %row)
  %c.after = add i64 %c, 1
  %nowhere = icmp eq i64 %data, 0
  br i1 %nowhere, label %refuse, label %check.next

measure:
  %most.at = getelementptr i64, ptr %table, i64 8
  %most = load i64, ptr %most.at
  %work.at = getelementptr i64, ptr %table, i64 9
  %work.fixed = load i64, ptr %work.at
  %each.at = getelementptr i64, ptr %table, i64 10
  %each = load i64, ptr %each.at
  %work.varying = mul i64 %each, %samples
  %work.bytes = add i64 %work.fixed, %work.varying
  %has.work = icmp ne i64 %work.bytes, 0
  %work.many = icmp ugt i64 %work.bytes, %most
  br i1 %work.many, label %refuse, label %make.next
make.next:
  %m = phi i64 [ 0, %measure ], [ %m.after, %make.describe ]
  %made = phi ptr [ %row, %measure ], [ %made.after, %make.describe ]
  %made.all = icmp eq i64 %m, %outputs
  br i1 %made.all, label %run, label %make.one
make.one:
  %elements = call i64 @room(ptr %made, i64 %samples)
  %too.many = icmp ugt i64 %elements, %most
  br i1 %too.many, label %release, label %make.allocate
make.allocate:
  %head = call i64 @head(ptr %made)
  %bytes = add i64 %head, %elements
  %memory = call ptr @aligned_alloc(i64 64, i64 %bytes)
  %no.memory = icmp eq ptr %memory, null
  br i1 %no.memory, label %release, label %make.describe
make.describe:
  %elements.at = getelementptr i8, ptr %memory, i64 %head
  call void @describe(ptr %memory, ptr %made, ptr %elements.at, i64 %samples)
  %result.at = getelementptr ptr, ptr %results, i64 %m
  store ptr %memory, ptr %result.at
  %m.place = add i64 %inputs, %m
  %output.place = getelementptr i64, ptr %places, i64 %m.place
  %output.address = ptrtoint ptr %elements.at to i64
  store i64 %output.address, ptr %output.place
  %made.after = call ptr @after(ptr %made)
  %m.after = add i64 %m, 1
  br label %make.next

run:
  br i1 %has.work, label %work.get, label %work.done
work.get:
  %work.over = add i64 %work.bytes, 63
  %work.room = and i64 %work.over, -64
  %work.got = call ptr @aligned_alloc(i64 64, i64 %work.room)
  %no.work = icmp eq ptr %work.got, null
  br i1 %no.work, label %release, label %work.done
work.done:
  %work = phi ptr [ null, %run ], [ %work.got, %work.get ]
  %work.place = getelementptr i64, ptr %places, i64 %tensor.count
  %work.address = ptrtoint ptr %work to i64
  store i64 %work.address, ptr %work.place
  %region.at = getelementptr i64, ptr %table, i64 5
  %region = load ptr, ptr %region.at
  %left = call i1 %region(ptr %block)
  call void @free(ptr %work)
  %leaves.at = getelementptr i64, ptr %table, i64 7
  %leaves = load i64, ptr %leaves.at
  %may.leave = icmp ne i64 %leaves, 0
  %has.left = and i1 %left, %may.leave
  br i1 %has.left, label %release, label %wrap.all
release: ; of results that nobody has
  %kept = phi i64 [ %m, %make.one ], [ %m, %make.allocate ], [ %outputs, %work.get ],
    [ %outputs, %work.done ]
  call void @free.from(ptr %results, i64 0, i64 %kept)
  br label %refuse
wrap.all:
  %list = call ptr @PyList_New(i64 %outputs)
  %no.list = icmp eq ptr %list, null
  br i1 %no.list, label %no.room, label %wrap.next
no.room:
  call void @free.from(ptr %results, i64 0, i64 %outputs)
  ret ptr null
wrap.next:
  %w = phi i64 [ 0, %wrap.all ], [ %w.after, %wrap.done ]
  %wrapped.all = icmp eq i64 %w, %outputs
  br i1 %wrapped.all, label %end, label %wrap.one
wrap.one:
  %managed.at = getelementptr ptr, ptr %results, i64 %w
  %managed = load ptr, ptr %managed.at
  %w.failed = call i32 %wrap(ptr %managed, ptr %object.place)
  %w.after = add i64 %w, 1
  %is.wrapped = icmp eq i32 %w.failed, 0
  br i1 %is.wrapped, label %wrap.done, label %fail
wrap.done:
  %object = load ptr, ptr %object.place
  %ignored = call i32 @PyList_SetItem(ptr %list, i64 %w, ptr %object)
  br label %wrap.next
fail: ; this one stays, since nobody says to whom it belongs
  call void @free.from(ptr %results, i64 %w.after, i64 %outputs)
  call void @Py_DecRef(ptr %list)
  ret ptr null
end:
  ret ptr %list

refuse:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}
"""
