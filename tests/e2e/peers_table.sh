#!/bin/bash
# The table of kernels' peers, with a bench and peers that are none: every time stands in its cell,
# what is slower gets a star, and what cannot be understood is refused by name.
. "$(dirname "$0")/lib.bash"
TABLE=tests/bench/peers_table.sh
cat >"$T/bench" <<'BENCH'
echo '# copy 3.900 TB/s (read + write)'
echo 'format,K,N,M,kernel,tile,split,overlap,us,us_codes_given,TB/s,TFLOP/s,floor_us,percent,cublas_bf16_us,cublas_fp8_us,error'
echo 'w4a16,8192,8192,1,mma_sync,t8,2,0,12.70,nan,2,8,9,54,35.20,nan,1.7e-03'
echo 'w4a16,8192,8192,256,wgmma,t8,2,0,50.60,nan,2,8,9,54,52.00,nan,1.7e-03'
echo 'fp8,4096,28672,256,a8,t8,2,0,80.30,66.00,2,8,9,54,104.00,58.00,1.7e-03'
echo 'fp8,4096,28672,256,a8,t8,2,1,73.30,60.00,2,8,9,54,104.00,58.00,1.7e-03'
BENCH
marlin='echo w4a16,8192x8192,1,16.3; echo w4a16,8192x8192,256,100'
cutlass='echo "# CUTLASS"; for us in 60.00 56.30; do echo fp8,4096x28672,256,$us,cutlass; done; echo fp8,9x9,1,1'
printf '%s\n' "$marlin" >"$T/marlin"
printf '%s\n' "$cutlass" >"$T/cutlass"
export BENCH="bash $T/bench" PEERS="marlin=bash $T/marlin
vllm=bash $T/cutlass"

# table CODE [VARIABLE=VALUE...]: the command, its blanks as one
table() {
    local code=$1 have
    shift
    env "$@" bash $TABLE w4a16 fp8 8192 8192 4096 28672 -- 1 256 >"$T/raw" 2>"$T/stderr"
    have=$?
    tr -s ' ' <"$T/raw" >"$T/stdout"
    [ $have -eq "$code" ] || fail "exit $have, want $code ($(cat "$T/stderr"))"
}
line() { grep -qxF -- "$1" "$T/stdout" || fail "no line '$1' in $(cat "$T/stdout")"; }

table 0 CSV="$T/csv"
line 'format K x N M swage cublas_bf16 cublas_fp8 marlin cutlass vllm ratio'
line 'w4a16 8192x8192 1 12.70 35.20 - 16.30 - - 0.779'
line 'w4a16 8192x8192 256 50.60 52.00 - 100.00 - - 0.973'
line 'fp8 4096x28672 256 73.30 104.00 58.00 - 56.30 - 1.302*'
[ "$(tail -n 1 "$T/stdout")" = '3 cells, slower in 1; worst ratio 1.302: fp8 4096x28672 256 beside cutlass' ] ||
    fail "the last line is $(tail -n 1 "$T/stdout")"
grep -q '^# CUTLASS' "$T/stderr" || fail 'remarks of a peer are lost'
grep -qx 'fp8,4096,28672,256,cutlass,56.30' "$T/csv" || fail 'no line of a peer in the CSV'
table 1 LIMIT=1.3
table 0 LIMIT=1.31

# with codes of X given, cuBLASLt is 1.03 times as fast as the faster of two lines of ours
table 0 PEERS=
line 'fp8 4096x28672 256 73.30 104.00 58.00 1.034*'

# layers of experts: four numbers a shape, the faster of two lines of ours, and of a peer's
cat >"$T/layers" <<'BENCH'
echo 'scheme,experts,hidden,wide,top_k,tokens,rows,us,us_same,TB/s,TFLOP/s,percent,off'
echo 'w4a16,128,2048,768,8,1024,128,264.1,261.0,1.18,293,30,4.5e-03'
echo 'w4a16,128,2048,768,8,1024,96,250.0,261.0,1.18,293,30,4.5e-03'
echo 'fp8,8,4096,14336,2,16,16,459.2,461.5,3.05,25,64,0.0e+00'
BENCH
layers='echo w4a16,128x2048x768x8,1024,247.0,humming_grouped; echo fp8,8x4096x14336x2,16,600'
table 0 BENCH="bash $T/layers" CSV="$T/csv" "PEERS=cutlass=$layers"
line 'format experts M swage humming_grouped cutlass ratio'
line 'w4a16 128x2048x768x8 1024 250.00 247.00 - 1.012*'
line 'fp8 8x4096x14336x2 16 459.20 - 600.00 0.765'
[ "$(tail -n 1 "$T/stdout")" = '2 cells, slower in 1; worst ratio 1.012: w4a16 128x2048x768x8 1024 beside humming_grouped' ] ||
    fail "the last line is $(tail -n 1 "$T/stdout")"
grep -qx 'format,experts,hidden,wide,top_k,M,name,us' "$T/csv" || fail "the CSV begins $(head -n 1 "$T/csv")"
grep -qx 'fp8,8,4096,14336,2,16,cutlass,600' "$T/csv" || fail 'no line of a layer in the CSV'
mkdir -p "$T/build/tests/gpu"
{ echo '#!/bin/bash'; cat "$T/layers"; } >"$T/build/tests/gpu/bench_experts"
chmod +x "$T/build/tests/gpu/bench_experts"
table 0 BENCH=experts BUILD="$T/build" "PEERS=cutlass=$layers"
line 'fp8 8x4096x14336x2 16 459.20 - 600.00 0.765'

table 2 "PEERS=slow=echo w4a16,8192x8192,1"
grep -q "slow prints 'w4a16,8192x8192,1'; want FORMAT,SHAPE,M,us" "$T/stderr" || fail 'a bad line passes'
table 2 "PEERS=gone=echo no card >&2; exit 3"
table 2 "PEERS=swage=echo w4a16,8192x8192,1,1"
printf 'echo no card >&2\nexit 3\n' >"$T/gone"
table 2 "PEERS=gone=bash $T/gone"
grep -q 'gone: exit 3: no card' "$T/stderr" || fail "a peer that fails: $(cat "$T/stderr")"
table 2 BENCH='echo skipped: no GPU'
grep -q 'timed nothing: skipped: no GPU' "$T/stderr" || fail "a bench without a card: $(cat "$T/stderr")"
table 2 BENCH=false
finish
