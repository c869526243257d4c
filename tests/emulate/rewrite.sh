#!/usr/bin/env bash
# rewrite.sh - what rewrite.c makes of a kernel whose comments have apostrophes: they begin no
# character, in a directive neither. A character that does not end is refused.
set -u
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
rewrite=$PWD/${BUILD:-build/release}/emulate/rewrite
cd "$dir" || exit 1

cat >from.cu <<'END'
#define N 4 /* the block's */
#define QUOTE '"' // as \' and "'" are
#define MOVE(x) asm("mov" : "=r"(x)) /* it doesn't
                                        end here */
__global__ void swk_a(int *p)
{
    (void)p; /* the device's */
}
void f() { swk_a<<<1, N>>>(0); }
END
cat >want.cu <<'END'
#line 1 "from.cu"
#define N 4 /* the block's */
#define QUOTE '"' // as \' and "'" are
#define MOVE(x) EMU_PTX(("mov" ),  EMU_OUT(x), ) /* it doesn't
                                        end here */
__global__ void swk_a(int *p)
{ emu_enter("swk_a");
    (void)p; /* the device's */
}
void f() { emu_launch(swk_a, 1, N)(0); }
END
"$rewrite" from.cu have.cu && diff want.cu have.cu || exit 1

printf '#define QUOTE '"'"'a\nint x;\n' >open.cu
"$rewrite" open.cu have.cu 2>said && { echo "FAIL a character without an end was taken"; exit 1; }
grep -q 'goes on in another line' said || { cat said; exit 1; }
