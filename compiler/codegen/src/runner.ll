; The program that an emulator runs: it holds memory and calls kernels for a process outside.
;
; It reads requests of eight 64-bit numbers from standard input, the operation first, and responds on
; standard output. It has no library. What is mapped, where code lies and what is called is decided
; outside, by the crate `hone-emulator`.
;
;   0  exit
;   1  map     bytes                                     returns the address of zeroed pages, or -errno
;   2  unmap   address, bytes
;   3  write   address, bytes                            the bytes follow the request
;   4  read    address, bytes                            returns the bytes
;   5  call    function, buffers, begin, end, scratch    as a kernel is called; returns 0 when it is done
;   6  time    function, buffers, begin, end, scratch    the same; returns the nanoseconds that it took
;
; It ends with status 2 on a request that is none of these, and with 3 where the other side is gone.
; Words in braces are replaced by those of the architecture.

module asm ".globl _start"
module asm "_start:"
module asm "{align_stack}"
module asm "{jump} serve"

define internal i64 @system_call(i64 %number, i64 %a, i64 %b, i64 %c, i64 %d, i64 %e, i64 %f) noinline nounwind {
  %result = call i64 asm sideeffect "{instruction}", "{registers}"(
    i64 %number, i64 %a, i64 %b, i64 %c, i64 %d, i64 %e, i64 %f)
  ret i64 %result
}

define internal void @exit(i64 %status) noinline noreturn nounwind {
  %ignored = call i64 @system_call(i64 {exit}, i64 %status, i64 0, i64 0, i64 0, i64 0, i64 0)
  unreachable
}

; Moves all of the bytes from or to a descriptor; ends the program where the other side is gone.
define internal void @transfer(i64 %number, i64 %descriptor, i64 %address, i64 %bytes) noinline nounwind {
entry:
  br label %next
next:
  %current = phi i64 [ %address, %entry ], [ %after, %moved ]
  %left = phi i64 [ %bytes, %entry ], [ %rest, %moved ]
  %done = icmp eq i64 %left, 0
  br i1 %done, label %end, label %move
move:
  %count = call i64 @system_call(i64 %number, i64 %descriptor, i64 %current, i64 %left, i64 0, i64 0, i64 0)
  %gone = icmp sle i64 %count, 0
  br i1 %gone, label %leave, label %moved
moved:
  %after = add i64 %current, %count
  %rest = sub i64 %left, %count
  br label %next
leave:
  call void @exit(i64 3)
  unreachable
end:
  ret void
}

; Nanoseconds on the monotonic clock (1), whose seconds and nanoseconds are written to two numbers at the address.
define internal i64 @now(i64 %address) noinline nounwind {
  %ignored = call i64 @system_call(i64 {clock}, i64 1, i64 %address, i64 0, i64 0, i64 0, i64 0)
  %pointer = inttoptr i64 %address to ptr
  %rest_pointer = getelementptr i64, ptr %pointer, i64 1
  %seconds = load volatile i64, ptr %pointer
  %rest = load volatile i64, ptr %rest_pointer
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}

define void @serve() noinline nounwind {
entry:
  %request = alloca [8 x i64], align 16
  %answer = alloca i64, align 16
  %clock = alloca [2 x i64], align 16
  %request_address = ptrtoint ptr %request to i64
  %answer_address = ptrtoint ptr %answer to i64
  %clock_address = ptrtoint ptr %clock to i64
  %a_pointer = getelementptr i64, ptr %request, i64 1
  %b_pointer = getelementptr i64, ptr %request, i64 2
  %c_pointer = getelementptr i64, ptr %request, i64 3
  %d_pointer = getelementptr i64, ptr %request, i64 4
  %e_pointer = getelementptr i64, ptr %request, i64 5
  br label %next
next:
  call void @transfer(i64 {read}, i64 0, i64 %request_address, i64 64)
  %operation = load volatile i64, ptr %request
  %a = load volatile i64, ptr %a_pointer
  %b = load volatile i64, ptr %b_pointer
  %c = load volatile i64, ptr %c_pointer
  %d = load volatile i64, ptr %d_pointer
  %e = load volatile i64, ptr %e_pointer
  switch i64 %operation, label %wrong [
    i64 0, label %end
    i64 1, label %map
    i64 2, label %unmap
    i64 3, label %write
    i64 4, label %read
    i64 5, label %call
    i64 6, label %time
  ]
map:
  ; Readable, writable and executable (7); private and anonymous (0x22).
  %address = call i64 @system_call(i64 {map}, i64 0, i64 %a, i64 7, i64 34, i64 -1, i64 0)
  store volatile i64 %address, ptr %answer
  call void @transfer(i64 {write}, i64 1, i64 %answer_address, i64 8)
  br label %next
unmap:
  %unmapped = call i64 @system_call(i64 {unmap}, i64 %a, i64 %b, i64 0, i64 0, i64 0, i64 0)
  br label %next
write:
  call void @transfer(i64 {read}, i64 0, i64 %a, i64 %b)
  br label %next
read:
  call void @transfer(i64 {write}, i64 1, i64 %a, i64 %b)
  br label %next
call:
  %function = inttoptr i64 %a to ptr
  %buffers = inttoptr i64 %b to ptr
  %scratch = inttoptr i64 %e to ptr
  call void %function(ptr %buffers, i64 %c, i64 %d, ptr %scratch)
  store volatile i64 0, ptr %answer
  call void @transfer(i64 {write}, i64 1, i64 %answer_address, i64 8)
  br label %next
time:
  %timed = inttoptr i64 %a to ptr
  %timed_buffers = inttoptr i64 %b to ptr
  %timed_scratch = inttoptr i64 %e to ptr
  %began = call i64 @now(i64 %clock_address)
  call void %timed(ptr %timed_buffers, i64 %c, i64 %d, ptr %timed_scratch)
  %ended = call i64 @now(i64 %clock_address)
  %took = sub i64 %ended, %began
  store volatile i64 %took, ptr %answer
  call void @transfer(i64 {write}, i64 1, i64 %answer_address, i64 8)
  br label %next
wrong:
  call void @exit(i64 2)
  unreachable
end:
  call void @exit(i64 0)
  unreachable
}
