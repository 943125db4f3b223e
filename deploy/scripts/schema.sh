#!/bin/sh
# Creates Temporal's two databases, or upgrades their tables to the version of this image.
# Every step can run again: it leaves existing objects alone.
# Address, user and password are temporal-sql-tool's own variables: SQL_HOST, SQL_PORT,
# SQL_USER, SQL_PASSWORD, SQL_PLUGIN.
set -eu

for kind in temporal visibility; do
  case $kind in
    temporal) database=temporal ;;
    visibility) database=temporal_visibility ;;
  esac
  temporal-sql-tool --db "$database" create
  temporal-sql-tool --db "$database" setup-schema -v 0.0
  temporal-sql-tool --db "$database" update-schema -d "/etc/temporal/schema/postgresql/v12/$kind/versioned"
done
