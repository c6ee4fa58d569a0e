#!/bin/sh
# Sees that the programs which the tests drive are on this machine: Java, Chromium with a Chinese
# font, PostgreSQL, strace, Node.js with npm, Go, faketime, OpenSSL, promtool, iproute2, and what makes
# file systems.
# Where this is root on a Debian, missing packages are installed; elsewhere they are named.
set -eu

missing=""
command -v chromium >/dev/null || missing="$missing chromium"
[ -n "$(fc-list :lang=zh 2>/dev/null)" ] || missing="$missing fontconfig fonts-wqy-microhei"
command -v strace >/dev/null || missing="$missing strace"
command -v node >/dev/null || missing="$missing nodejs"
command -v npm >/dev/null || missing="$missing npm"
command -v go >/dev/null || missing="$missing golang-go"
command -v faketime >/dev/null || missing="$missing faketime"
command -v promtool >/dev/null || missing="$missing prometheus"
command -v openssl >/dev/null || missing="$missing openssl"
command -v ip >/dev/null || missing="$missing iproute2"
command -v mkfs.xfs >/dev/null || missing="$missing xfsprogs"
command -v mkfs.ext4 >/dev/null || missing="$missing e2fsprogs"
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"

if [ -n "$missing" ]; then
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "the tests need these Debian packages:$missing" >&2
        echo "install them, for instance with: sudo apt-get install$missing" >&2
        exit 1
    fi
    echo "installing$missing"
    # The tests start servers of their own; the packages must not start one on the usual port.
    mkdir -p /etc/postgresql-common/createcluster.d
    echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/curlew-tests.conf
    if ! command -v promtool >/dev/null; then
        mkdir -p /etc/systemd/system
        ln -sf /dev/null /etc/systemd/system/prometheus.service
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # shellcheck disable=SC2086 # a list of words
    apt-get install -y -qq --no-install-recommends $missing
fi

java=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
if [ "${java:-0}" -lt 17 ]; then
    echo "the tests need Java 17 or newer on the PATH (Debian: openjdk-17-jre-headless);" \
        "found: ${java:-none}" >&2
    exit 1
fi
