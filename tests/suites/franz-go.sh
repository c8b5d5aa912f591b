# twmb/franz-go's own tests of its client, by its Go module: sh HOST:PORT all, as the scripts in the folder SUITES, whose
# lib.sh it uses. Group and transaction ETL with every balancer; those of KIP-848 and share groups skip themselves.
. "${SUITES_LIB:?the lib.sh of the folder SUITES}"
V=${FRANZ_GO_VERSION:-v1.22.3}
D=$CACHE/franz-go-$V
gomod "github.com/twmb/franz-go@$V" "$D"
[ -x "$CACHE/franz-go-$V.test" ] || (cd "$D" && GOFLAGS=-mod=mod $N timeout 600 go test -c -o "$CACHE/franz-go-$V.test" ./pkg/kgo) || die build
cd "$D/pkg/kgo" || die "no pkg/kgo"
export KGO_SEEDS=$BROKER KGO_TEST_RF=1 KGO_TEST_RECORDS=${RECORDS:-50000} KGO_LOG_LEVEL=none
timeout "${LIMIT:-1200}" $N "$CACHE/franz-go-$V.test" -test.v -test.run '^Test' > "$OUT/franz-go.log" 2>&1
finish "$(gosum "$OUT/franz-go.log")"
