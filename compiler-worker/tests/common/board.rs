//! A board that turns bad.

/// Speaks for the runner of a board, which the second argument names. What the file says that the first one names turns it: it
/// answers no more (`hang`), tells other times (`times N`), or reads other numbers than there are, from the beginning (`wrong`)
/// or after so many reads (`wrong N`).
pub const SCRIPT: &str = r#"
import struct, subprocess, sys, time
board = subprocess.Popen(["qemu-aarch64", sys.argv[2]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def exactly(stream, count):
    data = b""
    while len(data) < count:
        more = stream.read(count - len(data))
        if not more: sys.exit(0)
        data += more
    return data
def mode():
    try: return open(sys.argv[1]).read().split()
    except OSError: return []
reads = 0
while True:
    request = exactly(sys.stdin.buffer, 64)
    operation, a, b = struct.unpack("<3Q", request[:24])
    now = mode()
    while now[:1] == ["hang"]:
        time.sleep(0.1)
        now = mode()
    board.stdin.write(request)
    if operation == 3: board.stdin.write(exactly(sys.stdin.buffer, b))
    board.stdin.flush()
    answer = b""
    if operation in (1, 5, 6): answer = exactly(board.stdout, 8)
    if operation == 4:
        answer = bytearray(exactly(board.stdout, b))
        reads += 1
        if now[:1] == ["wrong"] and b > 16 and reads > int((now + ["0"])[1]):
            # Another element each time, so that no two answers agree.
            answer[(4 * reads + 3) % b] ^= 0x40
    if operation == 6 and now[:1] == ["times"]:
        took = struct.unpack("<q", answer)[0]
        answer = struct.pack("<q", max(1, int(took * float(now[1]))))
    sys.stdout.buffer.write(bytes(answer))
    sys.stdout.buffer.flush()
"#;
