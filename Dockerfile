# `make wheel`, `docker build -t odradek .`, `docker run --shm-size=256m -p 127.0.0.1:9092:9092 odradek`
FROM python:3.13-slim
COPY dist/odradek-*-py3-none-any.whl /tmp/
RUN pip install --no-cache-dir /tmp/odradek-*.whl
RUN useradd --system --create-home --home-dir /var/lib/odradek odradek
USER odradek
VOLUME /var/lib/odradek
EXPOSE 9092
ENTRYPOINT ["odradek", "start", "--override", "log.dirs=/var/lib/odradek/data"]
CMD ["--override", "listeners=PLAINTEXT://0.0.0.0:9092", "--override", "advertised.listeners=PLAINTEXT://localhost:9092"]
