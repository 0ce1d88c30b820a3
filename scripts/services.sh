#!/usr/bin/env bash
# What the tests need besides Python and Java, one function a service. The embedded default needs no server. The
# fault tests let system calls fail with strace. The tests of the Kafka back end start a broker of their own, from
# jars that are fetched here into the user's cache; SERVICES=kafka_start starts one that stays, kafka_stop ends it.
# Pipelines on Kafka read and write through Spark's own connector, fetched likewise, as are the libraries of Delta and
# of PostgreSQL, whose server is Debian's. The tests against the real Samza
# run its published jars. Archives of classes let the JVMs of Spark and of brokers start with less work.
# SERVICES=kerberos installs a KDC, as `make nightly` does, whose tests are by night only.
# The API server of Kubernetes is built where there is Go; where there is none, `make test` leaves the tests on it to
# `make nightly`, which needs Go.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/grete
azurite_directory=${GRETE_AZURITE:-$cache/azurite-3.35.0}
browser_directory=${GRETE_BROWSER:-$cache/axe-core-4.10.3}
prometheus_directory=${GRETE_PROMETHEUS:-$cache/prometheus}
debian_directory=${GRETE_DEBIAN:-$cache/debian-12}
kafka_jars_directory=${GRETE_KAFKA_JARS:-$cache/kafka-4.3.1}
kafka_tools_directory=${GRETE_KAFKA_TOOLS:-$cache/kafka-tools-4.3.1}
yarn_jars_directory=${GRETE_YARN_JARS:-$cache/yarn-3.5.0}
zookeeper_jars_directory=${GRETE_ZOOKEEPER_JARS:-$cache/zookeeper-3.9.5}
samza_jars_directory=${GRETE_SAMZA_JARS:-$cache/samza-1.8.0}
spark_kafka_jars_directory=${GRETE_SPARK_KAFKA_JARS:-$cache/spark-kafka-4.2.0}
spark_sinks_jars_directory=${GRETE_SPARK_SINK_JARS:-$cache/spark-sinks-4.2.0}
spark_s3_jars_directory=${GRETE_SPARK_S3_JARS:-$cache/spark-s3-3.5.0}
application_wheels_directory=${GRETE_APPLICATION_WHEELS:-$cache/application-wheels}
client_wheels_directory=${GRETE_CLIENT_WHEELS:-$cache/client-wheels}
kerberos_directory=${GRETE_KERBEROS_MODULE:-$cache/kerberos-1.3.1}
kube_apiserver_directory=${GRETE_KUBE_APISERVER:-$cache/kube-apiserver-1.34.4}
grafana_schema_directory=${GRETE_GRAFANA_SCHEMA:-$cache/grafana-schema-0.0.22}
dockerfile_lint_directory=${GRETE_DOCKERFILE_LINT:-$cache/dockerfile-lint-0.25.1}
helm_directory=${GRETE_HELM:-$cache/helm-4.0.0}
object_stores_directory=${GRETE_OBJECT_STORES:-$cache/object-stores-1}
otel_collector_directory=${GRETE_OTEL_COLLECTOR:-$cache/otel-collector-0.144.0}

present() { # command, package, what for, options of apt-get
  command -v "$1" >/dev/null && return
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq </dev/null && apt-get install -y -qq ${4:+"$4"} "$2" </dev/null >/dev/null
  else
    echo "$3 need $1 (Debian: sudo apt-get install $2)" >&2
    exit 1
  fi
}

strace_present() { present strace strace "the fault tests"; }

compose() { # without Docker, which it needs for more than to read a file
  present docker-compose docker-compose "the test of the compose file" --no-install-recommends
}

systemd_present() { present systemd-analyze systemd "the test of the unit"; } # nothing of it is begun

fetch_jars() { # pom, directory: all or nothing, so that a run that was cut off is no half a class path
  local pom=$1 directory=$2
  [ -e "$directory/complete" ] && cmp -s "$pom" "$directory/complete" && return
  present mvn maven "the tests against Kafka"
  echo "fetching the jars of $pom"
  rm -rf "$directory" "$directory.new"
  mkdir -p "$directory.new"
  mvn -q -B -f "$pom" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$directory.new" </dev/null
  cp "$pom" "$directory.new/complete"
  mv "$directory.new" "$directory"
}

spark_sinks_jars() { fetch_jars scripts/spark-sinks/pom.xml "$spark_sinks_jars_directory"; }

spark_s3_jars() { fetch_jars scripts/spark-s3/pom.xml "$spark_s3_jars_directory"; }

postgresql_present() { # the server alone: the tests start their own
  ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 && return
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then # no cluster and no service of the machine's
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] \
      || echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
  fi
  present postgres postgresql "the tests of outputs in a database"
}

fetch_modules() { # folder of the lock, directory, what for: all or nothing, as the jars
  local lock=scripts/$1/package-lock.json directory=$2
  [ -e "$directory/complete" ] && cmp -s "$lock" "$directory/complete" && return
  present npm npm "$3"
  echo "fetching the modules of $lock"
  rm -rf "$directory" "$directory.new"
  mkdir -p "$directory.new"
  cp "scripts/$1/package.json" "$lock" "$directory.new"
  npm ci --prefix "$directory.new" --ignore-scripts --no-audit --no-fund --loglevel error </dev/null
  cp "$lock" "$directory.new/complete"
  mv "$directory.new" "$directory"
}

azurite_modules() { fetch_modules azurite "$azurite_directory" "the tests on Azure Storage"; }

browser() { # Debian's Chromium with its driver, and what looks whether a page can be read by everybody
  present chromium chromium "the tests of the pages"
  present chromedriver chromium-driver "the tests of the pages"
  fetch_modules browser "$browser_directory" "the tests of the pages"
}

prometheus_programs() { # Debian's Prometheus and promtool, unpacked: no service of the machine's is begun
  [ -e "$prometheus_directory/complete" ] && return
  if ! command -v apt-get >/dev/null; then
    echo "the tests of alerts need Prometheus in $prometheus_directory (Debian: apt-get download prometheus)" >&2
    exit 1
  fi
  rm -rf "$prometheus_directory" "$prometheus_directory.new"
  mkdir -p "$prometheus_directory.new"
  (
    cd "$prometheus_directory.new"
    [ "$(id -u)" = 0 ] && apt-get update -qq </dev/null
    apt-get download -qq prometheus </dev/null 2>/dev/null
    dpkg -x prometheus_*.deb .
    rm prometheus_*.deb
  )
  touch "$prometheus_directory.new/complete"
  mv "$prometheus_directory.new" "$prometheus_directory"
}

debian() { # a small one, as the base of an image; for the nightly test
  [ -e "$debian_directory/complete" ] && return
  present buildah buildah "the test of the image"
  present debootstrap debootstrap "the test of the image"
  rm -rf "$debian_directory" "$debian_directory.new"
  debootstrap --variant=minbase bookworm "$debian_directory.new/root" >/dev/null
  tar -C "$debian_directory.new/root" -cf "$debian_directory.new/root.tar" .
  rm -rf "$debian_directory.new/root"
  touch "$debian_directory.new/complete"
  mv "$debian_directory.new" "$debian_directory"
}

spark_kafka_jars() { fetch_jars scripts/spark-kafka/pom.xml "$spark_kafka_jars_directory"; }

kafka_jars() { fetch_jars scripts/kafka/pom.xml "$kafka_jars_directory"; }

kafka_tools() { fetch_jars scripts/kafka-tools/pom.xml "$kafka_tools_directory"; } # as operators have them

yarn_jars() { fetch_jars scripts/yarn/pom.xml "$yarn_jars_directory"; }

zookeeper_jars() { fetch_jars scripts/zookeeper/pom.xml "$zookeeper_jars_directory"; }

samza_jars() { # the published jars of the real Samza, and the programs of interop/ compiled beside them
  fetch_jars interop/pom.xml "$samza_jars_directory"
  local sources=interop/src/main/java/grete/interop classes=$samza_jars_directory/classes
  local new=$classes.new.$$ source compiled=yes
  for source in "$sources"/*.java; do cmp -s "$source" "$classes/${source##*/}" || compiled=no; done
  [ $compiled = yes ] && return
  present javac openjdk-17-jdk-headless "the tests against the real Samza"
  javac -proc:none -nowarn -cp "$samza_jars_directory/*" -d "$new" "$sources"/*.java 2>/dev/null \
    || javac -proc:none -cp "$samza_jars_directory/*" -d "$new" "$sources"/*.java
  cp "$sources"/*.java "$new"
  rm -rf "$classes"
  mv "$new" "$classes"
}

samza_runner() { # the real Samza with its stores: jobs in a real container, and BENCH=kafka_peers
  local directory=${GRETE_RUNNER_JARS:-$cache/samza-runner-1.8.0}
  local sources=interop/runner/src/main/java/grete/interop
  fetch_jars interop/runner/pom.xml "$directory"
  diff -q "$sources" "$directory/classes/sources" >/dev/null 2>&1 && return
  present javac openjdk-17-jdk-headless "the tests with jobs of the real Samza"
  rm -rf "$directory/classes"
  javac -proc:none -nowarn -cp "$directory/*" -d "$directory/classes" "$sources"/*.java
  cp -r "$sources" "$directory/classes/sources"
}

kafka_streams() { # a contestant of BENCH=kafka_peers and kafka_latency
  local directory=${GRETE_KAFKA_STREAMS_JARS:-$cache/kafka-streams-4.3.1} source=benchmarks/peers/kafka_streams/Counter.java
  fetch_jars "${source%/*}/pom.xml" "$directory"
  cmp -s "$source" "$directory/classes/Counter.java" && return
  present javac openjdk-17-jdk-headless "the benchmark of Kafka Streams"
  rm -rf "$directory/classes"
  javac -proc:none -nowarn -cp "$directory/*" -d "$directory/classes" "$source"
  cp "$source" "$directory/classes"
}

kafka_start() { # prints the bootstrap servers; NODES=3 for three
  kafka_jars
  .venv/bin/python -m grete.testing.kafka_broker start "$cache/broker" --nodes "${NODES:-1}"
}

kafka_stop() { .venv/bin/python -m grete.testing.kafka_broker stop "$cache/broker"; }

spark_archive() { # for this virtual environment: the archive names the paths of Spark's jars
  local archive=.venv/spark.jsa
  [ "$archive" -nt .venv/.installed ] && return
  .venv/bin/python -m grete.spark.class_archive "$archive" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC >/dev/null 2>&1 ||
    echo "Spark starts without an archive" >&2
}

kafka_archive() { # beside the jars, which it holds for
  local archive=$kafka_jars_directory/broker.jsa
  [ -e "$archive" ] && return
  .venv/bin/python scripts/kafka_archive.py "$archive" >/dev/null 2>&1 || echo "brokers start without an archive" >&2
}

application_wheels() { # of other versions than the framework's: applications of the tests bring them
  wheels "$application_wheels_directory" application connect
}

newer_clients() { # of Spark Connect, for the nightly tests
  local version
  for version in 4.1.2 4.2.0; do
    wheels "$client_wheels_directory/$version" "connect-$version"
  done
}

wheels() { # into a directory, what some locks name
  local directory=$1 lock
  shift
  local locks=("${@/%/.txt}")
  locks=("${locks[@]/#/scripts/packages/}")
  [ -e "$directory/complete" ] && cat "${locks[@]}" | cmp -s - "$directory/complete" && return
  echo "fetching the packages of ${locks[*]}"
  rm -rf "$directory" "$directory.new"
  for lock in "${locks[@]}"; do # there is no wheel of pyspark-client
    .venv/bin/python -m pip download --quiet --no-deps --require-hashes --only-binary :all: \
      --no-binary pyspark-client --requirement "$lock" --dest "$directory.new" </dev/null
  done
  cat "${locks[@]}" >"$directory.new/complete"
  mv "$directory.new" "$directory"
}

kerberos() { # a KDC, and the module of clients, which is compiled: 20 seconds
  present krb5kdc krb5-kdc "the tests with Kerberos"
  present kadmin.local krb5-admin-server "the tests with Kerberos"
  local lock=scripts/packages/kerberos.txt directory=$kerberos_directory
  [ -e "$directory/complete" ] && cmp -s "$lock" "$directory/complete" && return
  present krb5-config libkrb5-dev "the tests with Kerberos"
  echo "compiling the module of $lock"
  rm -rf "$directory" "$directory.new"
  .venv/bin/python -m pip install --quiet --no-deps --require-hashes --no-build-isolation --no-binary :all: \
    --requirement "$lock" --target "$directory.new" </dev/null
  cp "$lock" "$directory.new/complete"
  mv "$directory.new" "$directory"
}

kube_apiserver() { # Kubernetes' own, built from its Go modules: 5 minutes of a processor and 3 GB, which go again
  local version=k8s.io/component-base/version
  go_program kube-apiserver "$kube_apiserver_directory" "the API server of Kubernetes" \
    "-X $version.gitVersion=v1.34.4 -X $version.gitMajor=1 -X $version.gitMinor=34"
}

otel_collector() { # OpenTelemetry's, built from its Go modules: a minute of a processor
  go_program otel-collector "$otel_collector_directory" "the collector of OpenTelemetry"
}

object_stores() { # a gateway that speaks S3 and one that speaks Google's, from their Go modules: 2 minutes of a processor
  go_program object-stores "$object_stores_directory" "the object stores"
}

grafana_schema() { # that of its boards, from its Go modules: 2 minutes of a processor
  go_program grafana-schema "$grafana_schema_directory" "the schema of Grafana"
}

dockerfile_lint() { # the rules of `docker build --check`, from BuildKit's Go modules: 2 minutes of a processor
  go_program dockerfile-lint "$dockerfile_lint_directory" "BuildKit's linter"
}

helm() { # its own commands, built from its Go modules: 2 minutes of a processor
  go_program helm "$helm_directory" "Helm"
}

go_program() { # builds scripts/NAME into its directory, by what name for people, with flags of the linker
  local name=$1 directory=$2
  go_program_present "$name" "$directory" && return
  if ! go_present "$name"; then
    echo "building $3 needs Go $(sed -n 's/^go //p' "scripts/$name/go.mod") or newer" >&2
    exit 1
  fi
  mkdir -p "${directory%/*}"
  (
    flock 9 # of two at once one would take the other's files away
    go_program_present "$name" "$directory" && exit
    mkdir -p "$directory.new" # one that was cut off goes on with what it has compiled
    echo "building $3"
    export GOPATH=$directory.new/go GOCACHE=$directory.new/build CGO_ENABLED=0
    export GOFLAGS="-mod=readonly -modcacherw -buildvcs=false -trimpath"
    (cd "scripts/$name" && nice go build -ldflags "-s -w ${4:-}" -o "$directory.new/$name" .)
    rm -rf "$directory" "$directory.new/go" "$directory.new/build"
    cp -r "scripts/$name" "$directory.new/sources"
    mv "$directory.new" "$directory"
  ) 9>"$directory.lock"
}

go_program_present() {
  [ -x "$2/$1" ] && diff -q "scripts/$1" "$2/sources" >/dev/null 2>&1
}

go_present() { # as new as the sources of a program want it; none is fetched
  command -v go >/dev/null && (cd "scripts/$1" && GOTOOLCHAIN=local go list -m >/dev/null 2>&1)
}

kube_apiserver_with_go() {
  if go_program_present kube-apiserver "$kube_apiserver_directory"; then
    return
  elif go_present kube-apiserver; then # by itself, so that where its modules cannot be fetched the rest goes on
    SERVICES=kube_apiserver bash scripts/services.sh || echo "the tests on the API server of Kubernetes run in make nightly alone" >&2
  else
    echo "without Go 1.24 the tests on the API server of Kubernetes run in make nightly alone" >&2
  fi
}

for service in ${SERVICES:-strace_present systemd_present postgresql_present browser azurite_modules prometheus_programs kafka_jars kafka_tools kafka_archive spark_kafka_jars spark_sinks_jars zookeeper_jars yarn_jars samza_jars samza_runner application_wheels spark_archive kube_apiserver_with_go}; do
  "$service"
done
