"""A Spark Connect server: prints its port, and serves until its standard input ends."""

import sys

from keyshared.spark.session import local_session

SETTINGS = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.sql.shuffle.partitions": "3",
}

if __name__ == "__main__":
    spark = local_session("connect", master="local[2]", jvm_options="-XX:TieredStopAtLevel=1", settings=SETTINGS)
    # a Scala object: its port is known to the JVM alone
    service = getattr(spark.sparkContext._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    sys.stdout.write(f"{getattr(service, 'MODULE$').localPort()}\n")
    sys.stdout.flush()
    sys.stdin.read()
    spark.stop()
